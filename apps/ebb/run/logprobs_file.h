// Writes the file of --logprobs: the log-probability of each token that was generated, one line of
// JSON for each token.
#ifndef EBB_APPS_FIDELITY_LOGPROBS_FILE_H_
#define EBB_APPS_FIDELITY_LOGPROBS_FILE_H_

#include <fstream>
#include <span>
#include <string>

#include "apps/common/options/options.h"
#include "ebb/model.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb::cli {

// LogprobsFile writes the log-probability of each generated token to the file of --logprobs.
class LogprobsFile {
 public:
  // Takes the options; all calls do nothing if --logprobs was not given.
  explicit LogprobsFile(const CliOptions& options)
      : path_(options.logprobs_file), num_top_(options.top_logprobs) {}

  // Checks before a long run that the file can be written. Errors: IoError; InvalidArgument
  // (--top-logprobs without --logprobs).
  Status Check();
  // Appends a line for the token. The first call replaces an earlier file. logits: [vocab_size],
  // the logits from which the token was sampled.
  void Add(const Model& model, std::span<const float> logits, Token token);
  // Flushes the file. Errors: IoError if a line could not be written.
  Status Finish();

 private:
  const std::string path_;
  const int num_top_;
  std::ofstream file_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_FIDELITY_LOGPROBS_FILE_H_
