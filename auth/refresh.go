package auth

// Challenge returns the challenge for session.refresh. Verify needs it together with the answer. It is
// empty if the configuration has no challenges for the scheme.
func (s *Set) Challenge(scheme string) Secret {
	if !challengeable(scheme) || s.current.Load().policy(scheme) == ChallengeNever {
		return ""
	}
	return NewChallenge()
}

// CanBeReplacedBy returns nil if a session may replace id by next: the same principal with a credential
// that expires later. The error is an *Error.
func (id Identity) CanBeReplacedBy(next Identity) error {
	switch {
	case next.Principal != id.Principal:
		return &Error{Reason: ReasonPrincipal, Message: "the credential belongs to another principal than the session"}
	case !next.Expires.IsZero() && !next.Expires.After(id.Expires):
		return &Error{Reason: ReasonStale, Message: "the credential does not expire later than the current one; send a newer one"}
	}
	return nil
}
