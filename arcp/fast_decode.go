package arcp

import (
	"bytes"
	"slices"
	"strconv"
)

// fastDecoder is a payload that decodes its common form without reflection. It returns false for
// any other form, which is then decoded in full. raw is part of a frame and therefore valid JSON.
type fastDecoder interface{ decodeFast(raw Raw) bool }

// EachMember calls fn for each member of an object, in their order, until fn returns false. It
// reports whether raw is an object and fn returned true for each member. The slices alias raw.
func EachMember(raw Raw, fn func(name []byte, value Raw) bool) bool {
	s := scanners.Get().(*scanner)
	defer func() {
		s.src = nil
		scanners.Put(s)
	}()
	s.reset(raw, 2*MaxDepth)
	o, err := s.open()
	for err == nil {
		name, value, more, e := s.member(&o)
		switch {
		case e != nil:
			err = e
		case !more:
			return s.end() == nil
		case !fn(name, value):
			return false
		}
	}
	return false
}

// setUnescaped sets a string without escapes. It returns false for any other value.
func setUnescaped[S ~string](to *S, value Raw) bool {
	if value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return false
	}
	*to = S(value[1 : len(value)-1])
	return true
}

// decodeFast decodes a submit with only the members tool and arguments.
func (p *ToolInvokePayload) decodeFast(raw Raw) bool {
	return EachMember(raw, func(name []byte, value Raw) bool {
		switch string(name) {
		case "tool":
			return setUnescaped(&p.Tool, value)
		case "arguments":
			p.Arguments = value[:len(value):len(value)]
			return true
		}
		return false
	})
}

// decodeFast decodes an artifact.put without retain_seconds.
func (p *ArtifactPutPayload) decodeFast(raw Raw) bool {
	return EachMember(raw, func(name []byte, value Raw) bool {
		switch string(name) {
		case "media_type":
			return setUnescaped(&p.MediaType, value)
		case "data":
			return setUnescaped(&p.Data, value)
		case "sha256":
			return setUnescaped(&p.SHA256, value)
		case "size":
			size, err := strconv.ParseUint(string(value), 10, 64)
			p.Size = size
			return err == nil
		}
		return false
	})
}

// decodeFast decodes a job.accepted without lease_constraints, credentials and restored_from.
func (p *JobAcceptedPayload) decodeFast(raw Raw) bool {
	return EachMember(raw, func(name []byte, value Raw) bool {
		switch string(name) {
		case "job_id":
			return setUnescaped(&p.JobID, value)
		case "agent":
			return setUnescaped(&p.Agent, value)
		case "lease":
			p.Lease = value[:len(value):len(value)]
		case "budget":
			p.Budget = value[:len(value):len(value)]
		case "parent_job_id":
			return setUnescaped(&p.ParentJobID, value)
		case "accepted_at":
			return value[0] == '"' && p.AcceptedAt.UnmarshalJSON(value) == nil
		case "trace_id":
			return setUnescaped(&p.TraceID, value)
		default:
			return false
		}
		return value[0] != 'n'
	})
}

// decodeFast decodes a session.open with auth, client and capabilities.
func (p *SessionOpenPayload) decodeFast(raw Raw) bool {
	return EachMember(raw, func(name []byte, value Raw) bool {
		switch string(name) {
		case "auth":
			return EachMember(value, func(name []byte, value Raw) bool {
				switch string(name) {
				case "scheme":
					return setUnescaped(&p.Auth.Scheme, value)
				case "token":
					return setUnescaped(&p.Auth.Token, value)
				}
				return false
			})
		case "client":
			return EachMember(value, p.Client.member)
		case "capabilities":
			return p.Capabilities.readFast(value) || p.Capabilities.UnmarshalJSON(value) == nil
		}
		return false
	})
}

func (c *ClientInfo) member(name []byte, value Raw) bool {
	switch string(name) {
	case "kind":
		return setUnescaped(&c.Kind, value)
	case "version":
		return setUnescaped(&c.Version, value)
	case "fingerprint":
		return setUnescaped(&c.Fingerprint, value)
	case "principal":
		return setUnescaped(&c.Principal, value)
	}
	return false
}

// readFast reads capabilities that are encodings, and features as flags or by name.
func (c *Capabilities) readFast(raw Raw) bool {
	*c = Capabilities{}
	return EachMember(raw, func(name []byte, value Raw) bool {
		switch string(name) {
		case "features":
			return plainList(&c.Features, value)
		case "encodings":
			return plainList(&c.Encodings, value)
		}
		on := string(value) == "true"
		i := slices.Index(Features, Feature(name))
		if i < 0 || !on && string(value) != "false" {
			return false
		}
		if c.Flags == nil {
			c.Flags = make(map[Feature]bool)
		}
		c.Flags[Features[i]] = on
		return true
	})
}

// plainList sets a list of texts that have no escapes.
func plainList(to *[]string, value Raw) bool {
	if value[0] != '[' || bytes.IndexByte(value, '\\') >= 0 {
		return false
	}
	list := make([]string, 0, bytes.Count(value, []byte{','})+1)
	for rest := value[1 : len(value)-1]; ; {
		rest = bytes.TrimLeft(rest, ", \t\r\n")
		if len(rest) == 0 {
			*to = list
			return true
		}
		if rest[0] != '"' {
			return false
		}
		end := 1 + bytes.IndexByte(rest[1:], '"')
		list = append(list, string(rest[1:end]))
		rest = rest[end+1:]
	}
}
