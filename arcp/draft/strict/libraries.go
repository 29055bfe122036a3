package strict

import "slices"

// Library is a published client library.
type Library string

// The libraries.
const (
	Go         Library = "go"       // the head of the repository
	Go110      Library = "go-1.1.0" // the released version
	TypeScript Library = "typescript"
	Python     Library = "python" // 1.1.3
	Java       Library = "java"
	CSharp     Library = "csharp"
	FSharp     Library = "fsharp"
	Ruby       Library = "ruby"
	PHP        Library = "php"
)

// OwnClient is package arcp/client of this module, which reads the answers by their correlation_id.
const OwnClient Library = "arcp-client"

// Libraries lists the published libraries.
var Libraries = []Library{Go, Go110, TypeScript, Python, Java, CSharp, FSharp, Ruby, PHP}

// match finds the request that a frame answers.
type match uint8

const (
	byOrder       match = iota // the oldest
	byTrace                    // trace_id of the envelope, else the oldest
	byRequestID                // payload.request_id
	byReplyTo                  // payload.reply_to
	byID                       // id of the envelope
	byCorrelation              // correlation_id of the envelope
	never                      // the frame answers no request of the kind
)

// effect is the effect of a session.error after the handshake.
type effect uint8

const (
	failsRequest  effect = iota // the request that it names
	failsAll                    // all calls and jobs
	failsAllAgain               // all; the library's own runtime sends it nevertheless
	ignored                     // nothing
)

// decoder has the facts about a library.
type decoder struct {
	envelope []field
	messages map[string][]field // members of the payloads
	bodies   map[string][]field // members of the bodies, by kind

	ids            bool   // identifiers are checked
	strictNull     bool   // null for an optional member makes the frame invalid
	gaps           bool   // a gap in event_seq breaks the session
	needsSession   bool   // frames without session_id are ignored
	echoWelcome    bool   // the welcome must have the id of the hello
	accepted       match  // how job.accepted finds its submit
	replies        match  // how session.jobs and job.subscribed find their request
	submitErrors   match  // how a job.error finds a submit
	sessionErrors  match  // how a session.error finds a request
	nacks          match  // how a nack finds a request
	sessionError   effect // after the handshake
	resultInOutput bool   // the result of a job is output, not result
	foreignErrors  bool   // a job.error for a job that is only being subscribed ends the subscription
	correlatesEnd  bool   // the first frame with the correlation_id of a submit must be the end of its job
}

const commonEnvelope = `
	arcp =1.1
	id name
	type name
	session_id? name
	trace_id? trace
	job_id? name
	event_seq? uint
	payload object
	correlation_id? name
	timestamp? time`

var commonMessages = map[string]string{
	"session.welcome": `
		capabilities object
		capabilities.features names
		resume_window_sec? uint
		heartbeat_interval_sec? uint`,
	"session.error": `
		code code
		message name
		retryable bool
		details? object`,
	"session.ping": "nonce name \n sent_at time",
	"session.pong": "ping_nonce name \n received_at time",
	"session.jobs": `
		jobs array
		jobs[].job_id name
		jobs[].agent name
		jobs[].status =pending|running|success|error|cancelled|timed_out
		next_cursor? text`,
	"session.bye":    "reason? text",
	"session.closed": "reason? text",
	"job.accepted": `
		job_id name
		lease? object
		lease_constraints? object
		lease_constraints?.expires_at utc
		credentials? array
		credentials[]?.id name
		credentials[]?.endpoint name`,
	"job.event": "kind name \n ts time \n body object",
	"job.result": `
		final_status =success
		summary? text
		result_id? name
		result_size? uint
		completed_at? time`,
	"job.error": `
		final_status =error|cancelled|timed_out
		code code
		message name
		retryable bool
		details? object
		completed_at? time`,
	"job.cancelled": "reason? text",
	"job.subscribed": `
		job_id name
		current_status =pending|running|success|error|cancelled|timed_out
		agent name
		subscribed_from? uint
		replayed? bool
		lease_constraints?.expires_at utc`,
}

// commonBodies are the bodies of draft 1.1 §8.2, with the members that F# requires.
var commonBodies = map[string]string{
	"log":          "level =debug|info|warn|error \n message text \n fields? object \n attributes? object",
	"thought":      "text text",
	"tool_call":    "tool text \n args any \n call_id text",
	"tool_result":  "call_id text \n error?.code code \n error?.message name \n error?.retryable bool",
	"status":       "phase name \n message? text \n details? object",
	"metric":       "name text \n value number \n unit? text \n dims? object \n dimensions? texts",
	"artifact_ref": "uri text \n content_type text \n byte_size? uint \n sha256? text",
	"delegate": `
		delegate_id name
		child_job_id name
		agent name
		lease patterns
		lease_request? patterns
		lease_constraints? object`,
	"progress":     "current amount \n total? amount \n units? text \n message? text",
	"result_chunk": "result_id name \n chunk_seq uint \n data text \n encoding =utf8|base64 \n more bool",
}

const numericBudget = "budget? numbers"

// decoders has the facts about each library, in addition to the common ones.
var decoders = map[Library]*decoder{
	Go: library(decoder{
		gaps: true, resultInOutput: true,
		accepted: byOrder, replies: byRequestID, submitErrors: never,
		sessionErrors: byRequestID, nacks: never, sessionError: failsRequest,
	}, map[string]string{
		"session.welcome": "capabilities.agents[]?.name name",
		"job.accepted":    numericBudget,
		"job.subscribed":  numericBudget,
	}, map[string]string{"progress": "current uint \n total? uint"}, ""),
	Go110: library(decoder{
		resultInOutput: true, accepted: byOrder, replies: byRequestID, submitErrors: never,
		sessionErrors: byRequestID, nacks: never, sessionError: failsAllAgain,
	}, map[string]string{
		"session.welcome": "capabilities.agents[]?.name name",
		"job.accepted":    numericBudget,
		"job.subscribed":  numericBudget,
	}, map[string]string{"progress": "current uint \n total? uint"}, ""),
	TypeScript: library(decoder{
		strictNull: true, gaps: true, needsSession: true,
		accepted: byTrace, replies: byRequestID, submitErrors: byTrace,
		sessionErrors: byRequestID, nacks: never, sessionError: failsAll,
	}, map[string]string{
		"session.welcome": `
			runtime.name name
			runtime.version name
			resume_token name
			resume_window_sec above0
			heartbeat_interval_sec? above0
			capabilities.encodings names
			capabilities.agents? array
			capabilities.agents[]?.name name
			capabilities.agents[]?.versions names
			capabilities.agents[]?.default? name`,
		"session.jobs": `
			request_id name
			jobs[].lease object
			jobs[].created_at time
			jobs[].last_event_seq uint
			next_cursor any`,
		"job.accepted":   numericBudget + "\n lease patterns \n credentials[]?.scheme =bearer \n credentials[]?.value name",
		"job.subscribed": numericBudget + "\n lease patterns \n request_id name",
	}, nil, ""),
	Python: library(decoder{
		ids: true, accepted: byRequestID, replies: byRequestID, submitErrors: never,
		sessionErrors: byRequestID, nacks: never, sessionError: failsAll,
	}, map[string]string{
		"session.welcome": `
			session_id name
			runtime.name name
			runtime.version name
			resume_token name
			accepted_at time
			capabilities.encodings names
			capabilities.agents? array`,
		"session.jobs":   "request_id name \n jobs[].submitted_at time",
		"job.accepted":   "agent name \n accepted_at time \n request_id name \n budget? texts \n credentials[]?.scheme =bearer",
		"job.subscribed": "request_id name \n budget? texts",
		"job.result":     "completed_at time",
		"job.error":      "completed_at time \n final_status =error",
	}, nil, ""),
	Java: library(decoder{
		foreignErrors: true, accepted: byOrder, replies: byRequestID, submitErrors: byID,
		sessionErrors: never, nacks: never, sessionError: ignored,
	}, map[string]string{
		"session.welcome": "runtime.name name \n runtime.version name \n capabilities.agents? array \n capabilities.agents[]?.name name",
		"session.jobs":    "request_id name \n jobs[].created_at time",
		"job.accepted":    numericBudget + "\n accepted_at time",
		"job.subscribed":  numericBudget,
	}, nil, ""),
	CSharp: library(decoder{
		gaps: true, accepted: byOrder, replies: byRequestID, submitErrors: never,
		sessionErrors: byRequestID, nacks: never, sessionError: failsAll,
	}, map[string]string{
		"session.welcome": "runtime.name name \n runtime.version name",
		"session.jobs":    "request_id name \n jobs[].created_at time",
		"job.accepted":    numericBudget + "\n agent name \n accepted_at time",
		"job.subscribed":  numericBudget,
		"job.cancelled":   "job_id name",
	}, nil, ""),
	FSharp: library(decoder{
		echoWelcome: true, accepted: byID, replies: byID, submitErrors: byID,
		sessionErrors: byID, nacks: never, sessionError: failsRequest,
	}, map[string]string{
		"session.welcome": `
			runtime.name name
			runtime.version name
			resume_token name
			resume_window_sec above0
			capabilities.agents array`,
		"session.jobs":   "jobs[].lease object \n jobs[].created_at time \n jobs[].last_event_seq uint",
		"job.accepted":   numericBudget,
		"job.subscribed": numericBudget,
	}, nil, ""),
	Ruby: library(decoder{
		accepted: byReplyTo, replies: byReplyTo, submitErrors: byReplyTo,
		sessionErrors: byReplyTo, nacks: never, sessionError: failsRequest,
	}, map[string]string{
		"job.accepted":   "agent name \n accepted_at time \n reply_to name \n lease?.id name",
		"job.subscribed": "reply_to name",
		"job.result":     "job_id name",
		"job.error":      "job_id name",
	}, nil, "session_id name"),
	OwnClient: library(decoder{
		gaps: true, accepted: byCorrelation, replies: byCorrelation, submitErrors: byCorrelation,
		sessionErrors: byCorrelation, nacks: byCorrelation, sessionError: failsRequest,
	}, map[string]string{
		"session.welcome": "session_id name \n resume_token name",
		"nack":            "code code \n message name \n retryable bool",
	}, nil, ""),
	PHP: library(decoder{
		correlatesEnd: true, accepted: byRequestID, replies: byCorrelation, submitErrors: byCorrelation,
		sessionErrors: byCorrelation, nacks: byCorrelation, sessionError: failsRequest,
	}, map[string]string{
		"session.welcome": "session_id name",
		"nack":            "code code \n message name",
		"subscribe.event": "event object",
	}, nil, "timestamp time"),
}

// library completes a decoder with the common fields.
func library(d decoder, messages, bodies map[string]string, envelope string) *decoder {
	d.envelope = parse(commonEnvelope + "\n" + envelope)
	d.messages, d.bodies = merged(commonMessages, messages), merged(commonBodies, bodies)
	return &d
}

func merged(common, own map[string]string) map[string][]field {
	m := make(map[string][]field)
	for name, text := range common {
		m[name] = parse(text)
	}
	for name, text := range own {
		m[name] = append(slices.Clone(m[name]), parse(text)...)
	}
	return m
}

// codes are the error codes that TypeScript decodes.
var codes = []string{"PERMISSION_DENIED", "LEASE_SUBSET_VIOLATION", "JOB_NOT_FOUND", "DUPLICATE_KEY", "AGENT_NOT_AVAILABLE",
	"AGENT_VERSION_NOT_AVAILABLE", "CANCELLED", "TIMEOUT", "RESUME_WINDOW_EXPIRED", "HEARTBEAT_LOST", "LEASE_EXPIRED", "BUDGET_EXHAUSTED",
	"INVALID_REQUEST", "UNAUTHENTICATED", "INTERNAL_ERROR"}

// fixedRetryable are the codes whose retryable TypeScript compares.
var fixedRetryable = map[string]bool{"INTERNAL_ERROR": true, "LEASE_EXPIRED": false, "BUDGET_EXHAUSTED": false}
