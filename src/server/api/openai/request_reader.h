// RequestReader is the base of the readers of requests. Each API has a reader for the fields that
// only it has, or has in another form; the functions here read the fields that APIs share. Answers
// list fields without effect; constraints on the answer that cannot be honoured are refused;
// nothing is clamped.
#ifndef EBB_SERVER_API_OPENAI_REQUEST_READER_H_
#define EBB_SERVER_API_OPENAI_REQUEST_READER_H_

#include <optional>
#include <string>
#include <vector>

#include "src/server/api/base/json_fields.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

inline constexpr int kMostLogprobs = 20;

// RequestReader reads one request; it keeps the first error.
class RequestReader {
 public:
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

 protected:
  RequestReader(Endpoint endpoint, const Json& body, const RequestDefaults& defaults);
  ~RequestReader() = default;

  // Hides a field from the shared ones. Returns its name, for `own_`.
  const std::string& Own(const std::string& name);
  void ReadModel();
  // Reads the log-probabilities that a chat asks for.
  void ReadChatOutput();
  // Reads `prediction`, OpenAI's predicted output.
  void ReadPrediction();
  // Reads `echo` and the grammar of a completion. A completion has no template to say where its
  // text begins.
  void ReadTextGrammar();
  // Reads sampling, lengths, stops, streaming, caching, sessions and `ebb`, and refuses constraints
  // that ebb does not support.
  void ReadShared();
  [[nodiscard]] std::vector<Token> TokensOf(const Json& json, const std::string& path);
  // Returns the request with the fields that no reader has read in `ignored`, or the error.
  [[nodiscard]] ApiResult<CompletionRequest> Take(ReadScope scope = ReadScope::kAnswer);
  void Fail(const std::string& path, const std::string& message,
            std::string code = "invalid_value");

  const RequestDefaults& defaults_;
  const Json& body_;
  std::optional<ApiError> error_;
  JsonFields own_;     // fields of this API
  JsonFields fields_;  // fields that APIs share
  CompletionRequest request_;
  bool leaves_out_empty_stops_ = false;  // true: drops empty stops; false: they are errors

 private:
  void ReadLengths();
  void ReadStops();
  void AddStops(const char* name, const Json& stop);
  void ReadStream();
  void ReadCache();
  void ReadSession();
  void ReadOwn();
  void ReadTiers(JsonFields* fields);
  void RefuseOthers();
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_REQUEST_READER_H_
