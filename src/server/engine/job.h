// Job is a request as the engine's thread sees it, and JobUpdate its results: tokens in, text out.
// Neither knows JSON or connections.
#ifndef EBB_SERVER_ENGINE_JOB_H_
#define EBB_SERVER_ENGINE_JOB_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/sampler.h"
#include "ebb/status.h"
#include "src/server/engine/schedule.h"
#include "src/server/engine/session_work.h"

namespace ebb::server {

struct Job {
  JobId id = 0;  // unique as long as the server runs
  OwnerId owner = 0;
  int priority = 0;
  std::optional<double> deadline_seconds = {};  // from the job's arrival
  std::vector<Token> prompt;                    // not empty without `work`
  SessionOptions session;
  // Selects the prompts with which the job may share rows; see PrefixKey(). Nothing: prefix caching
  // is off for this job, in both directions.
  std::optional<std::string> prefix_key = {};
  std::unique_ptr<Sampler> sampler;
  GenerateOptions generate;                       // the driver sets its callbacks
  std::optional<int> logprobs = {};               // top tokens to report with each token
  enum class LogprobSource { kModel, kSampler };  // see LogprobsOf(), Sampler::LastDraw()
  LogprobSource logprob_source = LogprobSource::kModel;
  bool reports_tokens = false;    // fills JobUpdate::tokens
  bool reports_progress = false;  // fills JobUpdate::progress
  bool reports_memory = false;    // fills JobUpdate::memory and JobUpdate::preceding
  // Holds the session's part if the job is a turn of a stored session. A job that continues a
  // cut-off answer has no prompt.
  std::optional<SessionWork> work = {};
};

struct JobPiece {
  TextPart part = TextPart::kAnswer;
  std::string text;
};

// JobToken is one generated token.
struct JobToken {
  Token token = 0;
  std::string text;    // the text that this token completed; may be empty
  double seconds = 0;  // since the first token
};

// PromptProgress reports how far a prompt has been read.
struct PromptProgress {
  int total = 0;       // tokens
  int cached = 0;      // of `total`, found by prefix caching
  int processed = 0;   // of `total`, with cached ones
  double seconds = 0;  // since reading began
};

// MemoryReport holds the memory that a job's sequence occupies, by tier.
struct MemoryReport {
  size_t num_tokens = 0;                     // of the whole sequence, with those before the answer
  std::array<int64_t, kNumTiers> rows = {};  // (layer, kv head, token) triples; T3: evicted
  std::array<size_t, kNumTiers> page_bytes = {};
  // Counts the bytes that a full cache would occupy: the rows of all tokens at the precision of T0.
  size_t full_bytes = 0;
  // Holds for each token the tier of most of its rows, '0' to '3'. If it has fewer characters than
  // the sequence has tokens, it samples evenly spaced tokens. Empty: the engine keeps no ledger.
  std::string tiers;
};

// AnswerLogprobs holds the log-probabilities of one token of an answer.
struct AnswerLogprobs {
  Logprobs of;
  // Holds the token's range of bytes in the text of the whole answer, thoughts included: [begin,
  // end).
  size_t begin = 0;
  size_t end = 0;
};

// JobEnd says how a job ended. Times are in seconds.
struct JobEnd {
  FinishReason finish = FinishReason::kError;
  std::string stop_string = {};  // kStopString: the stop string that was found
  Status error = {};             // the cause, for kContext, kCap, kCancelled and kError
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of `prompt_tokens`, found by prefix caching
  int generated_tokens = 0;
  int thought_tokens = 0;
  int decode_steps = 0;
  uint64_t logits_hash = 0;
  int num_parks = 0;
  double queue_seconds = 0;
  double first_token_seconds = 0;  // from the job's arrival
  double prompt_seconds = 0;       // from the job's start to the first token
  double decode_seconds = 0;       // from the first token to the end
  // Says why the session could not continue. Only jobs with SessionWork set this and the next two.
  SessionTrouble trouble = SessionTrouble::kNone;
  std::optional<uint64_t> resting = {};  // the driver keeps the session under this number
  std::optional<SessionEnd> session = {};
};

// JobUpdate holds what has changed of a job since its last update.
struct JobUpdate {
  JobId id = 0;
  bool accepted = false;  // the job is queued and will be answered
  std::vector<JobPiece> pieces = {};
  std::vector<AnswerLogprobs> logprobs = {};  // with Job::logprobs
  std::vector<JobToken> tokens = {};  // with Job::reports_tokens; `pieces` has their text too
  std::vector<PromptProgress> progress = {};  // with Job::reports_progress
  // Holds the newest report and, in one update only, the tokens that precede the answer; both with
  // Job::reports_memory.
  std::optional<MemoryReport> memory = {};
  std::optional<std::vector<Token>> preceding = {};
  std::optional<SavedSession> saved = {};  // with SessionWork: at checkpoints and at the end
  std::optional<JobEnd> end = {};          // set in the job's last update
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_JOB_H_
