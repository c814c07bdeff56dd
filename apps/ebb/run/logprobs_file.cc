#include "apps/ebb/run/logprobs_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "apps/common/terminal/output.h"
#include "ebb/sampler.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

Json RecordOf(const Model& model, const TokenLogprob& token) {
  return {{"token", token.token},
          {"text", model.TokenText(token.token, Model::ControlTokens::kShow)},
          {"logprob", token.logprob}};
}

}  // namespace

Status LogprobsFile::Check() {
  if (path_.empty() && num_top_ > 0) {
    return InvalidArgument("--top-logprobs: they have nowhere to go; add --logprobs FILE");
  }
  return CheckWritable(path_);
}

void LogprobsFile::Add(const Model& model, std::span<const float> logits, Token token) {
  if (path_.empty()) return;
  if (!file_.is_open()) file_.open(path_, std::ios::binary);
  const Logprobs logprobs = LogprobsOf(logits, token, num_top_);
  Json record = RecordOf(model, logprobs.chosen);
  if (num_top_ > 0) {
    Json top = Json::array();
    for (const TokenLogprob& likely : logprobs.top) top.push_back(RecordOf(model, likely));
    record["top"] = std::move(top);
  }
  // A token may end within a character, which is not valid UTF-8, so invalid bytes are replaced.
  file_ << record.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

Status LogprobsFile::Finish() {
  if (path_.empty()) return OkStatus();
  file_.flush();
  if (file_) return OkStatus();
  const std::string why = errno != 0 ? fmt::format(": {}", std::strerror(errno)) : "";
  return IoError(fmt::format("cannot write {}{}", path_, why));
}

}  // namespace ebb::cli
