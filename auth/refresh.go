package auth

// Challenge returns the challenge that goes with a request for a fresh credential
// of a scheme, to be given to Verify with the answer; it is empty if the
// configuration wants none of that scheme.
func (s *Set) Challenge(scheme string) Secret {
	if !challengeable(scheme) || s.current.Load().policy(scheme) == challengeNever {
		return ""
	}
	return NewChallenge()
}

// CanBeReplacedBy returns nil if fresh may take the place of id in a session: it has the
// same principal and a credential that lasts longer. The error is an *Error.
func (id Identity) CanBeReplacedBy(fresh Identity) error {
	switch {
	case fresh.Principal != id.Principal:
		return &Error{Reason: ReasonPrincipal, Message: "the credential is of another principal than the session"}
	case !fresh.Expires.IsZero() && !fresh.Expires.After(id.Expires):
		return &Error{Reason: ReasonStale, Message: "the credential lasts no longer than the one before; show a fresh one"}
	}
	return nil
}
