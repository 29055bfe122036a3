package transport

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMaskInPieces(t *testing.T) {
	plain := []byte("0123456789abcdef0123456789abcdef0123456789")
	key := uint32(0x0badcafe)
	want := bytes.Clone(plain)
	for i := range want {
		want[i] ^= byte(key >> (8 * (i % 4)))
	}
	for cut := range plain {
		got := bytes.Clone(plain)
		mask(got[cut:], mask(got[:cut], key))
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, d)
		}
	}
}

func TestCloseCode(t *testing.T) {
	for _, client := range []bool{false, true} {
		for _, code := range []CloseCode{CloseNormal, CloseOverloaded, 4999} {
			if got := closeCode(controlFrame(opClose, closePayload(code, "why"), client)); got != code {
				t.Errorf("client %v: closeCode() = %d, want %d", client, got, code)
			}
		}
		if got := closeCode(controlFrame(opClose, closePayload(CloseAbnormal, "why"), client)); got != CloseNoStatus {
			t.Errorf("client %v: closeCode() = %d, want %d", client, got, CloseNoStatus)
		}
	}
}

// A cursor stops at the end of each frame, however the bytes come.
func FuzzFrameCursor(f *testing.F) {
	f.Add(3, 200, 70_000, 1)
	f.Add(0, 125, 126, 7)
	f.Add(65535, 65536, 0, 1000)
	f.Fuzz(func(t *testing.T, a, b, c, step int) {
		const most = 1 << 20
		step = 1 + int(uint(step)%most)
		var stream []byte
		ends := map[int]bool{}
		for i, n := range []int{a, b, c} {
			n = int(uint(n) % most)
			stream = appendHeader(stream, opText, n, uint32(i))
			stream = append(stream, make([]byte, n)...)
			ends[len(stream)] = true
		}
		var cur frameCursor
		for pos := 0; pos < len(stream); {
			if pos > 0 && cur.atStart() != ends[pos] {
				t.Fatalf("atStart() = %v at %d, frames end at %v", cur.atStart(), pos, ends)
			}
			n := cur.advance(stream[pos:min(pos+step, len(stream))])
			if n == 0 {
				t.Fatalf("no advance at %d", pos)
			}
			pos += n
		}
		if !cur.atStart() {
			t.Error("the last frame does not end with the stream")
		}
	})
}
