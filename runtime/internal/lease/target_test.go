package lease

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// targetCase is a pattern and a target that the pattern covers or does not cover.
type targetCase struct{ namespace, pattern, target string }

func targetCases(namespace, pattern string, targets ...string) (list []targetCase) {
	for _, t := range targets {
		list = append(list, targetCase{namespace, pattern, t})
	}
	return list
}

// evasions are targets that their pattern must not cover.
var evasions = func() (list []targetCase) {
	add := func(namespace, pattern string, targets ...string) {
		list = append(list, targetCases(namespace, pattern, targets...)...)
	}
	add(FSRead, "/workspace/**",
		"", "/", ".", "..", "workspace", "workspace/a", "./workspace/a", "../workspace/a", "~/workspace", "*", "**", "/*", "/**",
		"/workspace2", "/workspace2/a", "/workspac", "/Workspace/a", "/WORKSPACE/a", "/workspace-old/a", "/workspace.bak", "/workspace ",
		"/workspace/../etc/passwd", "/workspace/..", "/workspace/../", "/workspace/a/../../etc", "/workspace/./../etc/passwd",
		"/workspace/a/b/../../../etc", "/workspace//../etc", "/workspace/../workspace2/a", "/workspace/../../workspace/a",
		"/../workspace/a", "/..", "/workspace/../..", "/etc/../../workspace/a",
		"/workspace/%2e%2e/etc", "/workspace/%2E%2E/etc", "/workspace/%2e./etc", "/workspace/.%2e/etc", "/workspace/..%2fetc",
		"/workspace/..%2Fetc", "/workspace/%2e%2e%2fetc", "/workspace%2fa", "/workspace/a%2f..%2f..%2fetc", "/workspace/%2fetc/passwd",
		"/workspace/%5c..%5cetc", "/workspace/a%00", "/workspace/a%00.txt", "/workspace/%0a", "/workspace/%7f",
		"/workspace/a\x00", "/workspace/a\x00.txt", "\x00/workspace/a", "/workspace/a\n", "/workspace/a\r\nb",
		"/workspace/\x7f", "/workspace/\x1b[2J",
		`/workspace\a`, `/workspace/..\etc`, `/workspace/..\..\etc`, `\workspace\a`, `C:\workspace\a`, `C:/workspace/a`, `/workspace/a\`,
		"//workspace/a", "//host/workspace/a", "///workspace/a", `\\host\workspace\a`, "file:///workspace/a",
		"file:/workspace/a", "https://workspace/a",
		"/workspace/\xff", "/workspace/\xc0\xae\xc0\xae/etc", "/workspace/\xc0\xaf", "/workspace/\xed\xa0\x80", "/workspace/a\x80",
		"/workspace/\u202etxt.exe", "/workspace/\u2066a\u2069", "/workspace/a\u200bb", "/workspace/\ufeffa",
		"/workspace/a\u00adb", "/workspace/\u200d", "/workspace/\u2028",
		"/workspace/\u0085", "/workspace/\U000e0041", "/workspace/\u3164", "/workspace/\u061c",
		"/w\u043erkspace/a", "/\uff57orkspace/a", "/workspace\u2215a", "\uff0fworkspace/a", "/workspace\uff0fa", "\u2044workspace/a",
		" /workspace/a", "\t/workspace/a", "/workspace /a", "/workspace./a", "/workspace%20/a", "/workspace%/a", "/%77orkspace/a",
		"/workspace/"+strings.Repeat("a/", MaxPattern/2), "/workspace/"+strings.Repeat("a", MaxPattern),
		"/workspace"+strings.Repeat("/a", MaxSegments))
	add(FSRead, "/a/*", "/a", "/a/", "/a/b/c", "/a/./", "/a//", "/a/b/..", "/b", "/ab", "/a/b/./c")
	add(FSRead, "/a/*.txt", "/a/b/c.txt", "/a/b.txt/..", "/a/b.txt/c", "/a/txt", "/a/b.TXT", "/a/b.txt.sh", "/a/../b.txt", "/b.txt")
	add(FSRead, "/a/**/z", "/a", "/a/y", "/a/z/y", "/z", "/az", "/a/yz", "/a/b/../../z")
	add(FSRead, "/a", "/a/b", "/", "/A", "/a*", "/aa")
	add(FSRead, "/", "/a", "/*", "/a/../b")
	add(FSRead, "/a/?", "/a/b", "/a/", "/a")
	add(FSRead, "/a/[bc]", "/a/b", "/a/c", "/a/bc")
	add(FSRead, "/a/{b,c}", "/a/b", "/a/c", "/a/b,c")
	add(FSRead, "/a/a**", "/a/a/b", "/a/b")
	add(FSWrite, "/caf\u00e9/**", "/cafe\u0301/a", "/cafe/a", "/CAF\u00c9/a")
	add(NetFetch, "https://api.example.com/public/**",
		"", "/", "api.example.com/public/a", "//api.example.com/public/a", "https:/api.example.com/public/a", "https:api.example.com/public/a",
		"http://api.example.com/public/a", "ftp://api.example.com/public/a", "wss://api.example.com/public/a",
		"httpss://api.example.com/public/a",
		"https://api.example.com", "https://api.example.com/", "https://api.example.com/admin", "https://api.example.com/publicity",
		"https://api.example.com/Public/a", "https://api.example.com/public/../admin", "https://api.example.com/public/%2e%2e/admin",
		"https://api.example.com/public/%2E%2e/admin", "https://api.example.com/public/.%2e/admin", "https://api.example.com/public/..",
		"https://api.example.com/public/../../public/a", "https://api.example.com/../public/a", "https://api.example.com/public/a/../../admin",
		"https://api.example.com/public/..%2fadmin", "https://api.example.com/public%2fa", "https://api.example.com/public/%2f..%2fadmin",
		"https://api.example.com/public/..%5cadmin", `https://api.example.com/public/..\admin`, `https://api.example.com\public/a`,
		`https:\\api.example.com/public/a`, "https://api.example.com/public/..;/admin", "https://api.example.com/public/..;a=b/admin",
		"https://api.example.com/public/.;/a", "https://api.example.com/public/..%3b/admin", "https://api.example.com/public/%2e%2e;/admin",
		"https://api.example.com//public/a", "https://api.example.com/public//a", "https://api.example.com/public/a%00",
		"https://api.example.com/public/\x00",
		"https://api.example.com/public/%0d%0aHost:evil", "https://api.example.com/public/a\r\nHost: evil",
		"https://api.example.com/public/%", "https://api.example.com/public/%2",
		"https://api.example.com/public/%zz", "https://api.example.com/public/%c0%ae%c0%ae/admin",
		"https://api.example.com/public/%c0%af", "https://api.example.com/public/%ff",
		"https://api.example.com/public/%e2%80%ae", "https://api.example.com/public/\u202e",
		"https://api.example.com/public/%ed%a0%80", "https://api.example.com/public/%a9%a9",
		"https://api.example.com/public/%c3", "https://api.example.com/public/%c3a",
		"https://api.example.com/public/%c3%a9%a9", "https://api.example.com/public/%e2%80%8b",
		"https://api.example.com/public/%2e%80", "https://api.example.com/public/%41%80", "https://api.example.com/public/%c3%a9%80%80%80%80",
		"https://evil.com/public/a", "https://api.example.com.evil.com/public/a",
		"https://api.example.comevil.com/public/a", "https://evilapi.example.com/public/a",
		"https://example.com/public/a", "https://x.api.example.com/public/a", "https://api.example.com./public/a",
		"https://api..example.com/public/a", "https://.api.example.com/public/a",
		"https://api.example.com@evil.com/public/a", "https://evil.com@api.example.com/public/a",
		"https://user:pw@api.example.com/public/a", "https://@api.example.com/public/a",
		"https://api.example.com%40evil.com/public/a", "https://api.example.com%2fpublic/a",
		"https://api.example.com%00.evil.com/public/a", "https://api.example%2ecom/public/a",
		"https://evil.com#@api.example.com/public/a", "https://evil.com?@api.example.com/public/a",
		`https://evil.com\@api.example.com/public/a`, "https://evil.com/#https://api.example.com/public/a",
		"https://api.example.com?/public/a", "https://api.example.com#/public/a", "https://api.example.com/?/public/a",
		"https://api.example.com/#/public/a",
		"https://api.example.com:80/public/a", "https://api.example.com:8443/public/a", "https://api.example.com:/public/a",
		"https://api.example.com:0443/public/a",
		"https://api.example.com:443:443/public/a", "https://api.example.com:99999/public/a",
		"https://api.example.com:-443/public/a", "https://api.example.com:443a/public/a", "https://api.example.com: 443/public/a",
		"https://api.example.com /public/a", "https:// api.example.com/public/a", " https://api.example.com/public/a",
		"https://api.example.com\t/public/a", "https://api.exam\nple.com/public/a",
		"https://\u0430pi.example.com/public/a", "https://api\u3002example\u3002com/public/a",
		"https://\uff41pi.example.com/public/a", "https://api.example.c\u043em/public/a", "https://xn--pi-7kc.example.com/public/a",
		"https://api.ex\u00adample.com/public/a", "https://api.example.com\u2044public/a", "https://*.example.com/public/a",
		"https://**/public/a", "*://api.example.com/public/a", "https:///public/a", "https://:443/public/a",
		"javascript://api.example.com/public/a", "https\x00://api.example.com/public/a", "file:///public/a",
		"https://[api.example.com]/public/a", "https://api.example.com/public/a b",
		"https://api.example.com/public/"+strings.Repeat("a", MaxPattern))
	add(NetFetch, "https://*.example.com/**", "https://example.com/", "https://a.b.example.com/",
		"https://.example.com/", "https://example.com.evil.com/", "https://evil.com/.example.com/",
		"https://evilexample.com/", "https://a.example.com:8443/", "https://evil.com/a.example.com/",
		"https://a.example.com.:443/", "https://evil.com?.example.com/", "https://-.evil.com/")
	add(NetFetch, "https://**.example.com/**", "https://evilexample.com/", "https://example.com.evil/",
		"https://example.org/", "https://evil.com/x.example.com")
	add(NetFetch, "https://**/**", "http://a/", "https://127.0.0.1/", "https://169.254.169.254/latest/",
		"https://[::1]/", "https://0x7f.1/", "https://2130706433/", "https://0/", "https://[::ffff:127.0.0.1]/")
	add(NetFetch, "https://*.*.*.*/", "https://127.0.0.1/", "https://10.0.0.1/")
	add(NetFetch, "http://127.0.0.1/**", "http://0x7f.1/", "http://0x7f.0.0.1/", "http://0x7f000001/",
		"http://0X7F000001/", "http://2130706433/", "http://017700000001/", "http://127.1/", "http://127.0.1/",
		"http://0177.0.0.1/", "http://127.0.0.01/", "http://127.0.0.1./", "http://127.000.000.001/", "http://127.0.0.256/",
		"http://127.0.0.1.1/", "http://127.0.0.0x1/", "http://localhost/", "http://[::1]/",
		"http://[::ffff:7f00:1]/", "http://[::ffff:127.0.0.1]/", "http://[::127.0.0.1]/", "http://127.0.0.1:8080/",
		"http://\u0661\u0662\u0667.0.0.1/", "http://127\u30020.0.1/", "http://127.0.0.1%2f/")
	add(NetFetch, "http://[::1]/**", "http://[::2]/", "http://[::1%25eth0]/", "http://[::1%eth0]/", "http://[::1/",
		"http://::1/", "http://[::1]x/", "http://[::1]:0/", "http://x[::1]/", "http://[[::1]]/", "http://[]/",
		"http://[::1]@evil.com/", "http://127.0.0.1/")
	add(NetFetch, "api.example.com/**", "http://api.example.com/a", "api.example.com/a", "https://api.example.com.evil.com/a")
	add(NetFetch, "https://h/a", "https://h/a/", "https://h/a/b", "https://h/A", "https://h/a;x", "https://h/a%3f", "https://h/a%23b")
	add(NetFetch, "https://h/a/*", "https://h/a", "https://h/a/b/c", "https://h/a/b/", "https://h/a/../b")
	add(ToolCall, "demo.echo", "demo.echo2", "demo.Echo", "demo", "echo", "demo.echo@1.0.0", "demo/echo", " demo.echo",
		"demo.echo ", "demo.echo\x00", "demo.ech\u043e", "demo\u200b.echo", "demo%2eecho", "*", "**", "")
	add(ToolCall, "demo.*", "demo", "xdemo.echo", "Demo.echo", "demo.a/b", "demo.a/../b", "demo./x", "demo%2ea",
		"demo.%2f", "demo.\xff", "demo.\u202ea")
	add(ToolCall, "*", "", "a//b", "/a", "a/", "../a", "a/..", "a/./b", "a\x00", "\xff", "a%2fb")
	add(AgentDelegate, "team/*", "team", "team/", "team/a/b", "team/../other", "teams/a", "team//a", "team/.", "team/..", "team/%2e%2e")
	add(ModelUse, "anthropic/*", "anthropic", "openai/gpt", "anthropic/../openai/gpt", "anthropic/..", "anthropic//x",
		"xanthropic/a", "anthropic/%2e%2e/openai", "anthropic/..%2fopenai", "Anthropic/a", "anthropic/\x00", "anthropic/a\u200b", "/anthropic/a")
	add(ModelUse, "a*b", "", "a", "b", "ba", "a/b", "a/b/b", "ab/", "xab", "abx", "a%62")
	add(ModelUse, "gpt-4", "gpt-4o", "gpt-4/", "GPT-4", "gpt-4*", "gpt-4 ")
	add("payment.refund.create", "order:*", "order", "xorder:1", "order:1/2", "order:../x/..", "order:1\x00",
		"https://order:1", "/order:1", "Order:1", "order:%2f", "invoice:1")
	add("x-vendor.disk", "/data/**", "/data/../etc", "data/a", "/data2", "/data/%2e%2e/etc", `/data/..\etc`, "//data/a", "https://data/a")
	add("x-vendor.disk", "**", "/etc/passwd", "https://evil.com/", "a/../b")
	return list
}()

func TestCanonicalRefusesEvasions(t *testing.T) {
	if len(evasions) < 150 {
		t.Fatalf("only %d evasions", len(evasions))
	}
	for _, c := range evasions {
		l := lease(t, map[string][]string{c.namespace: {c.pattern}})
		if err := l.Covers(c.namespace, c.target); err == nil {
			t.Errorf("%s %q covers %q", c.namespace, c.pattern, c.target)
		} else if err.Code != arcp.CodePermissionDenied {
			t.Errorf("%s %q of %q: %v, want PERMISSION_DENIED", c.namespace, c.pattern, c.target, err)
		}
	}
}

func TestCanonicalAcceptsPlainTargets(t *testing.T) {
	var list []targetCase
	add := func(namespace, pattern string, targets ...string) {
		list = append(list, targetCases(namespace, pattern, targets...)...)
	}
	add(FSRead, "/workspace/**", "/workspace", "/workspace/", "/workspace/a", "/workspace/a/b/c", "/workspace/./a",
		"/workspace//a", "/workspace/a/../b", "/etc/../workspace/a",
		"/workspace/..a", "/workspace/a..", "/workspace/...", "/workspace/.git", "/workspace/a b", "/workspace/*",
		"/workspace/100%", "/workspace/%41", "/workspace/%252e%252e%252fetc", "/workspace/\u00e9", "/workspace/\uff0e\uff0e")
	add(FSRead, "/**", "/", "/a", "/a/b")
	add(FSRead, "/*", "/a")
	add(FSRead, "/", "/", "/.", "/a/..")
	add(FSRead, "/a/", "/a", "/a/")
	add(FSRead, "/a//b", "/a/b")
	add(FSRead, "/a/*", "/a/b", "/a/b/", "/a/*")
	add(FSRead, "/a/*.txt", "/a/b.txt", "/a/.txt")
	add(FSRead, "/a/**/z", "/a/z", "/a/b/z", "/a/b/c/z", "/a/z/z", "/a/z/b/z")
	add(FSRead, "/**/x/**/y/**", "/x/y", "/x/x/y", "/a/x/b/y/c", "/x/a/y", "/y/x/y")
	add(FSRead, "/a/?", "/a/?")
	add(FSRead, "/a/[b]{c}", "/a/[b]{c}")
	add(FSRead, "/a/b**c", "/a/bc", "/a/bxc")
	add(NetFetch, "https://api.example.com/public/**", "https://api.example.com/public",
		"https://api.example.com/public/", "https://api.example.com/public/a", "HTTPS://API.Example.COM/public/a",
		"https://api.example.com:443/public/a", "https://api.example.com/public/a?x=1&y=../..",
		"https://api.example.com/public/a#frag", "https://api.example.com/%70ublic/a", "https://api.example.com/x/../public/a",
		"https://api.example.com/public/./a", "https://api.example.com/public/%20", "https://api.example.com/public/%252f",
		"https://api.example.com/public/\u00e9", "https://api.example.com/public/%c3%a9",
		"https://api.example.com/public/%F0%9F%98%80", "https://api.example.com/public/a?q=http://x@y",
		"https://api.example.com/public/..a", "https://api.example.com/public/a;v=1", "https://api.example.com/public/{x}")
	add(NetFetch, "https://api.example.com/caf\u00e9", "https://api.example.com/caf%c3%a9",
		"https://api.example.com/caf\u00e9", "https://api.example.com/caf%C3%A9")
	add(NetFetch, "https://*.example.com/**", "https://a.example.com", "https://a.example.com/b/c")
	add(NetFetch, "https://**.example.com/**", "https://example.com/", "https://a.b.example.com/x")
	add(NetFetch, "https://a-*.example.com/v*/x", "https://a-1.example.com/v2/x")
	add(NetFetch, "https://**/**", "https://a/", "https://a.b.c/d/e?f", "https://localhost/")
	add(NetFetch, "API.example.com:443/**", "https://api.example.com/a")
	add(NetFetch, "api.example.com", "https://api.example.com", "https://api.example.com/", "https://api.example.com?x")
	add(NetFetch, "http://localhost:8080/**", "http://localhost:8080/", "http://LOCALHOST:8080/a")
	add(NetFetch, "http://h:443/**", "http://h:443/")
	add(NetFetch, "http://127.0.0.1/**", "http://127.0.0.1/", "http://127.0.0.1:80/a")
	add(NetFetch, "http://[::1]:8080/**", "http://[::1]:8080/", "http://[0:0:0:0:0:0:0:1]:8080/", "http://[0::1]:8080/a")
	add(NetFetch, "http://[2001:DB8::0:1]/**", "http://[2001:db8::1]/")
	add(NetFetch, "https://xn--bcher-kva.example/**", "https://xn--bcher-kva.example/", "https://XN--BCHER-KVA.example/")
	add(NetFetch, "https://h/a/*", "https://h/a/", "https://h/a/b")
	add(ToolCall, "*", "a", "demo.echo", "a/b", "a/b/c", "demo.echo@1.0.0")
	add(ToolCall, "**", "a", "a/b/c")
	add(ToolCall, "demo.*", "demo.echo", "demo.a.b", "demo.")
	add(AgentDelegate, "*", "a/b")
	add(AgentDelegate, "team/**", "team", "team/a", "team/a/b")
	add(ModelUse, "*", "a", "a/b/c")
	add(ModelUse, "a*b", "ab", "abxb", "aabb")
	add(ModelUse, "anthropic/claude-*-4*", "anthropic/claude-sonnet-4", "anthropic/claude-opus-4-1")
	add(ModelUse, "tier-fast/**", "tier-fast/a", "tier-fast/a/b")
	add("payment.refund.create", "order:*", "order:ord_4812", "order:", "order:*")
	add("x-vendor.disk", "/data/**", "/data/a/../b")
	add("x-vendor.fetch", "https://h/**", "HTTPS://h:443/a")
	for _, c := range list {
		l := lease(t, map[string][]string{c.namespace: {c.pattern}})
		if err := l.Covers(c.namespace, c.target); err != nil {
			t.Errorf("%s %q of %q: %v", c.namespace, c.pattern, c.target, err)
		}
	}
}

func TestCanonicalFormIsStable(t *testing.T) {
	for _, c := range []struct{ namespace, in, want string }{
		{FSRead, "/a/./b//c/../d/", "/a/b/d"},
		{"filesystem.read", "/a/..", "/"},
		{NetFetch, "HTTP://Example.COM:80/%7Ea/%3f/./b/../?q#f", "http://example.com/~a/%3F/"},
		{NetFetch, "https://h/a/..", "https://h/"},
		{NetFetch, "https://h/a/.", "https://h/a/"},
		{NetFetch, "https://h/\u00e9{}|", "https://h/%C3%A9%7B%7D%7C"},
		{NetFetch, "http://[0:0::1]:81", "http://[::1]:81/"},
		{ToolCall, "a.B/c", "a.B/c"},
	} {
		got, err := canonical(c.namespace, c.in)
		if err != nil || got != c.want {
			t.Errorf("canonical(%s, %q) = %q, %v, want %q", c.namespace, c.in, got, err, c.want)
		}
		if again, err := canonical(c.namespace, got); err != nil || again != got {
			t.Errorf("the canonical form %q becomes %q, %v", got, again, err)
		}
	}
}

func TestAmbiguousPatternsAreRefused(t *testing.T) {
	for _, c := range []struct{ namespace, pattern string }{
		{FSRead, ""}, {FSRead, "a"}, {FSRead, "**"}, {FSRead, "*"}, {FSRead, "/a/../b"}, {FSRead, "/a/./b"},
		{FSRead, "/.."}, {FSRead, "/a\x00"}, {FSRead, `/a\b`},
		{FSRead, "/a/%2e%2e/**"}, {FSRead, "/a%2fb"}, {FSRead, "//a"}, {FSRead, "/\xff"}, {FSRead, "/\u202e"},
		{FSRead, "/" + strings.Repeat("a", MaxPattern)},
		{NetFetch, "*"}, {NetFetch, "**"}, {NetFetch, "https://"}, {NetFetch, "https:///a"}, {NetFetch, "*://h/a"},
		{NetFetch, "https://u@h/a"}, {NetFetch, "https://h/a?b"}, {NetFetch, "https://h/a#b"},
		{NetFetch, "https://h/../a"}, {NetFetch, "https://h/%2e%2e/a"}, {NetFetch, "https://h/a//b"},
		{NetFetch, "https://h/%2"}, {NetFetch, "https://h/%*"}, {NetFetch, "https://h:*/a"}, {NetFetch, "https://h:0/a"},
		{NetFetch, "https://10.0.*.*/"}, {NetFetch, "https://10.*/"}, {NetFetch, "https://*.1/"},
		{NetFetch, "https://0x7f.1/"}, {NetFetch, "https://1*/"}, {NetFetch, "https://[*]/"}, {NetFetch, "https://[::*]/"},
		{NetFetch, "http://[fe80::1%eth0]/"}, {NetFetch, "http://[::ffff:1.2.3.4]/"}, {NetFetch, "https://h./"},
		{NetFetch, "https://b\u00fccher.example/"}, {NetFetch, "/a"}, {NetFetch, "https://h a/"}, {NetFetch, `https://h\a`},
		{ToolCall, ""}, {ToolCall, "a//b"}, {ToolCall, "/a"}, {ToolCall, "a/../b"}, {ToolCall, "a%2fb"}, {ModelUse, "a/.."}, {ModelUse, "a\x00"},
		{"x.y", "/a/../b"}, {"x.y", "*://h/"},
	} {
		raw, err := arcp.Marshal(map[string][]string{c.namespace: {c.pattern}})
		if err != nil { // not UTF-8: no frame has it
			continue
		}
		l, bad := Parse(t0, Request{Lease: raw})
		if bad == nil {
			t.Errorf("%s %q is a pattern: %s", c.namespace, c.pattern, l.Encode())
			continue
		}
		wantCode(t, c.pattern, bad, arcp.CodeInvalidRequest)
		if !strings.Contains(bad.Message, c.namespace) {
			t.Errorf("%q does not name the key %s", bad.Message, c.namespace)
		}
	}
}
