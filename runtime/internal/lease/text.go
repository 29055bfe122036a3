package lease

import (
	"errors"
	"unicode"
	"unicode/utf8"
)

var (
	errUTF8      = errors.New("it is not UTF-8")
	errControl   = errors.New("it has a control character")
	errInvisible = errors.New("it has an invisible or direction-changing character")
	errBackslash = errors.New("it has a backslash")
	errDots      = errors.New(`it has a "." or ".." segment`)
	errEmpty     = errors.New("it has an empty segment")
	errHidden    = errors.New("it has a percent-encoded separator, dot or control character")
	errClimbs    = errors.New("it climbs above the root")
)

// checkText refuses invalid UTF-8, control characters, invisible characters and characters
// that change the writing direction. Characters with the same look are different characters.
func checkText(s string) error {
	for i := 0; i < len(s); {
		b := s[i]
		switch {
		case b < ' ' || b == 0x7f:
			return errControl
		case b < utf8.RuneSelf:
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if err := checkRune(r, n); err != nil {
			return err
		}
		i += n
	}
	return nil
}

// checkRune is checkText for a rune outside of ASCII that was decoded from n bytes.
func checkRune(r rune, n int) error {
	switch {
	case r == utf8.RuneError && n <= 1:
		return errUTF8
	case unicode.IsControl(r):
		return errControl
	case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || isBlank(r):
		return errInvisible
	}
	return nil
}

// isBlank reports whether a letter or mark has no visible shape.
func isBlank(r rune) bool {
	switch r {
	case 0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180b, 0x180c, 0x180d, 0x3164, 0xffa0:
		return true
	}
	return false
}

// decodePercent decodes "%XX" at s[i:]. ok is false for another text.
func decodePercent(s string, i int) (b byte, ok bool) {
	if i+2 >= len(s) || s[i] != '%' {
		return 0, false
	}
	hi, lo := unhex(s[i+1]), unhex(s[i+2])
	return hi<<4 | lo&0xf, hi < 16 && lo < 16
}

// unhex returns the value of a hexadecimal digit, or 0xff.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

// isSeparator reports whether a byte must not be percent-encoded: after decoding, the text would
// have other segments than the ones that Covers has compared.
func isSeparator(b byte) bool { return b == '/' || b == '\\' || b < ' ' || b == 0x7f }
