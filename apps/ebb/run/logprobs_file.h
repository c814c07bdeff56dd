// --logprobs: how likely the model found each token, one line of JSON a token.
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

class LogprobsFile {
 public:
  // Does nothing where no file was asked for.
  explicit LogprobsFile(const CliOptions& options)
      : path_(options.logprobs_file), num_top_(options.top_logprobs) {}

  // Whether it can be written, before the long run. Errors: IoError; InvalidArgument
  // (--top-logprobs alone).
  Status Check();
  // The first token replaces an earlier file. logits: [vocab_size], those that the token was chosen
  // from.
  void Add(const Model& model, std::span<const float> logits, Token token);
  // Errors: IoError, when a line is not there.
  Status Finish();

 private:
  const std::string path_;
  const int num_top_;
  std::ofstream file_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_FIDELITY_LOGPROBS_FILE_H_
