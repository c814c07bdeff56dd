// A request as the engine's thread sees it, and its updates: tokens in, text out. It knows nothing
// of JSON and connections.
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
  std::optional<double> deadline_seconds = {};  // from its arrival on
  std::vector<Token> prompt;                    // not empty without `work`
  SessionOptions session;
  // Which prompts it shares rows with; see PrefixKey(). Nothing: with none, and none with it.
  std::optional<std::string> prefix_key = {};
  std::unique_ptr<Sampler> sampler;
  GenerateOptions generate;                       // its callbacks are the driver's
  std::optional<int> logprobs = {};               // how many of the likeliest tokens come with each
  enum class LogprobSource { kModel, kSampler };  // see LogprobsOf(), Sampler::LastDraw()
  LogprobSource logprob_source = LogprobSource::kModel;
  bool tells_tokens = false;    // JobUpdate::tokens
  bool tells_progress = false;  // JobUpdate::progress
  bool tells_memory = false;    // JobUpdate::memory and JobUpdate::preceding
  // It is a turn of a session that stays. An answer that goes on has no prompt.
  std::optional<SessionWork> work = {};
};

struct JobPiece {
  TextPart part = TextPart::kAnswer;
  std::string text;
};

// A token that was generated.
struct JobToken {
  Token token = 0;
  std::string text;    // became certain with this token; empty for part of a character
  double seconds = 0;  // since the first token
};

// Progress in reading a prompt.
struct PromptProgress {
  int total = 0;       // tokens
  int cached = 0;      // of them, whose rows were there already
  int processed = 0;   // of them, cached ones included
  double seconds = 0;  // since the prompt began
};

// The memory that a job's sequence takes, tier by tier.
struct MemoryReport {
  size_t num_tokens = 0;                     // of the sequence, those before the answer included
  std::array<int64_t, kNumTiers> rows = {};  // (layer, kv head, token) triples; T3: evicted
  std::array<size_t, kNumTiers> page_bytes = {};
  // Bytes of the rows of all tokens at the precision of T0: those of a full cache.
  size_t full_bytes = 0;
  // The tier of most rows, '0' to '3', of each token or, where there are fewer characters than
  // tokens, of tokens that are evenly chosen. Empty: the engine keeps no ledger.
  std::string tiers;
};

// The log-probabilities of a token of an answer.
struct AnswerLogprobs {
  Logprobs of;
  // The bytes of the whole answer, thoughts included, that are its text.
  size_t begin = 0;
  size_t end = 0;
};

// How it ended. Times are seconds.
struct JobEnd {
  FinishReason finish = FinishReason::kError;
  std::string stop_string = {};  // of kStopString: which one
  Status error = {};             // why, for kContext, kCap, kCancelled and kError
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of the prompt, whose rows were there already
  int generated_tokens = 0;
  int thought_tokens = 0;
  int decode_steps = 0;
  uint64_t logits_hash = 0;
  int num_parks = 0;
  double queue_seconds = 0;
  double first_token_seconds = 0;  // from its arrival on
  double prompt_seconds = 0;       // from its beginning to the first token
  double decode_seconds = 0;       // from there to the end
  // With SessionWork.
  SessionTrouble trouble = SessionTrouble::kNone;
  std::optional<uint64_t> resting = {};  // the driver keeps the session under this number
  std::optional<SessionEnd> session = {};
};

// The changes of a job since the last update.
struct JobUpdate {
  JobId id = 0;
  bool accepted = false;  // it waits for its turn, and will be answered
  std::vector<JobPiece> pieces = {};
  std::vector<AnswerLogprobs> logprobs = {};  // where they were asked for
  std::vector<JobToken> tokens = {};  // with Job::tells_tokens; their texts are in `pieces` too
  std::vector<PromptProgress> progress = {};  // with Job::tells_progress
  // With Job::tells_memory: the newest report, and once the tokens that precede the answer.
  std::optional<MemoryReport> memory = {};
  std::optional<std::vector<Token>> preceding = {};
  std::optional<SavedSession> saved = {};  // with SessionWork: at checkpoints and at the end
  std::optional<JobEnd> end = {};          // nothing comes behind it
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_JOB_H_
