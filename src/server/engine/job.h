// Job is a request as the engine's thread gets it: tokens instead of text. JobUpdate is the answer
// of the engine's thread: text and events. Neither contains JSON or connections.
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
  std::optional<double> deadline_seconds = {};  // seconds from arrival until the job is cancelled
  std::vector<Token> prompt;                    // not empty, except with `work`
  SessionOptions session;
  // Limits with which prompts the job may share rows; see PrefixKey(). nullopt: this job neither
  // uses cached prompts nor leaves one.
  std::optional<std::string> prefix_key = {};
  std::unique_ptr<Sampler> sampler;
  GenerateOptions generate;                       // the driver sets GenerateOptions' callbacks
  std::optional<int> logprobs = {};               // number of most likely tokens to report
  enum class LogprobSource { kModel, kSampler };  // LogprobsOf(); Sampler::LastDraw()
  LogprobSource logprob_source = LogprobSource::kModel;
  bool reports_tokens = false;         // fill JobUpdate::tokens
  bool reports_progress = false;       // fill JobUpdate::progress
  std::vector<Token> prediction = {};  // a text that the answer may repeat
  bool reports_memory = false;         // fill JobUpdate::memory and JobUpdate::preceding
  // Describes the stored session if the job is one of its turns. A job that continues a cut-off
  // answer has an empty prompt.
  std::optional<SessionWork> work = {};
};

struct JobPiece {
  TextPart part = TextPart::kAnswer;
  std::string text;
};

// JobToken is one generated token.
struct JobToken {
  Token token = 0;
  std::string text;      // the text that this token completed; may be empty
  double seconds = 0;    // seconds since the answer's first token
  bool guessed = false;  // speculative decoding guessed the token, which needs no step of its own
};

// PromptProgress counts the tokens of a prompt that the engine has read.
struct PromptProgress {
  int total = 0;       // tokens of the prompt
  int cached = 0;      // tokens found by prefix caching
  int processed = 0;   // tokens read or found
  double seconds = 0;  // since reading began
};

// MemoryReport counts the rows of a job's sequence in each tier.
struct MemoryReport {
  size_t num_tokens = 0;                     // all tokens of the sequence, also before the answer
  std::array<int64_t, kNumTiers> rows = {};  // (layer, kv head, token) triples; T3: evicted
  std::array<size_t, kNumTiers> page_bytes = {};
  // Counts the bytes that a full cache would occupy: the rows of all tokens at the precision of T0.
  size_t full_bytes = 0;
  // Holds a character '0' to '3' for each token: the tier of most of its rows. If it is shorter
  // than the sequence, it describes evenly spaced tokens. Empty: the engine keeps no ledger.
  std::string tiers;
};

// AnswerLogprobs holds the log-probabilities of one token of an answer.
struct AnswerLogprobs {
  Logprobs of;
  // Give the bytes [begin, end) of the token in the text of the whole answer, thoughts included.
  size_t begin = 0;
  size_t end = 0;
};

// JobEnd describes the end of a job. Times are in seconds.
struct JobEnd {
  FinishReason finish = FinishReason::kError;
  std::string stop_string = {};  // the stop string found, if kStopString
  Status error = {};             // the cause of kContext, kCap, kCancelled or kError
  int prompt_tokens = 0;
  int cached_tokens = 0;  // prompt tokens found by prefix caching
  int generated_tokens = 0;
  int thought_tokens = 0;
  int decode_steps = 0;
  uint64_t logits_hash = 0;
  SpeculationReport guesses = {};
  int num_parks = 0;
  double queue_seconds = 0;
  double first_token_seconds = 0;  // from arrival to the first token
  double prompt_seconds = 0;       // from the start to the first token
  double decode_seconds = 0;       // from the first token to the end
  // Holds the reason why the session could not continue. This member and the two below are set only
  // for jobs with SessionWork.
  SessionTrouble trouble = SessionTrouble::kNone;
  std::optional<uint64_t> resting = {};  // number under which the driver keeps the session
  std::optional<SessionEnd> session = {};
};

// JobUpdate holds the changes of a job since its last update.
struct JobUpdate {
  JobId id = 0;
  bool accepted = false;  // the job is in the queue
  std::vector<JobPiece> pieces = {};
  std::vector<AnswerLogprobs> logprobs = {};  // filled if Job::logprobs is set
  std::vector<JobToken> tokens = {};  // filled if Job::reports_tokens; `pieces` has the text too
  std::vector<PromptProgress> progress = {};  // filled if Job::reports_progress
  // Hold the newest report and, in one update only, the tokens before the answer. Both are filled
  // if Job::reports_memory.
  std::optional<MemoryReport> memory = {};
  std::optional<std::vector<Token>> preceding = {};
  std::optional<SavedSession> saved = {};  // session files: at checkpoints and at the end
  std::optional<JobEnd> end = {};          // set in the job's last update
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_JOB_H_
