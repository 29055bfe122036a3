package auth_test

import (
	"context"
	"fmt"

	"github.com/arcpd/arcpd/auth"
)

// A client that keeps its token to itself: it names a principal, and proves that
// it holds the token by its answer to a challenge.
func Example() {
	var config auth.Config
	if err := config.AddToken(auth.Token{Principal: "alice", Secret: "her token", Roles: auth.LocalRoles()}); err != nil {
		fmt.Println(err)
	}
	set := auth.NewSet(&config)

	ctx := context.Background()
	request := auth.Request{Scheme: auth.Bearer, Principal: "alice"}
	_, challenge, err := set.Begin(ctx, request)
	fmt.Println("challenge:", challenge, err)

	proof := auth.Proof{Challenge: challenge, Response: auth.ChallengeResponse("her token", challenge)}
	id, err := set.Verify(ctx, request, proof)
	fmt.Println("identity:", id.Principal, id.Roles, err)

	proof.Response = auth.ChallengeResponse("a guess", challenge)
	_, err = set.Verify(ctx, request, proof)
	fmt.Println(err)
	// Output:
	// challenge: [redacted] <nil>
	// identity: alice [client worker approver] <nil>
	// auth: challenge response did not validate
}

// A configuration without an auth file: the principals come from a table of the program.
func ExampleConfig_AddPrincipal() {
	config := auth.NewConfig(auth.Options{RuntimeID: "build-farm"})
	err := config.AddPrincipal(auth.Principal{
		Name:        "alice",
		TokenHashes: []auth.Secret{auth.Secret(auth.FileHash("her token"))},
		Roles:       []auth.Role{auth.RoleClient, auth.RoleApprover},
		Limits:      auth.Limits{Jobs: 20},
	})
	if err != nil {
		fmt.Println(err)
	}
	err = config.AddPrincipal(auth.Principal{Name: "bob", Roles: []auth.Role{"clint"}})
	fmt.Println(err)

	set := auth.NewSet(config)
	id, _, err := set.Begin(context.Background(), auth.Request{Scheme: auth.Bearer, Token: "her token"})
	fmt.Println(id.Principal, id.Roles, err)
	// Output:
	// roles[0]: unknown role "clint": did you mean "client"?
	// alice [client approver] <nil>
}
