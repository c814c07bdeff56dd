// The base of the readers of requests. Each interface has a reader, which takes the fields that it
// alone has, or has in another form; the functions here read those that interfaces share. Fields
// without effect are named in the answer; constraints on the answer that cannot be honoured are
// refused; nothing is clamped.
#ifndef EBB_SERVER_API_OPENAI_REQUEST_READER_H_
#define EBB_SERVER_API_OPENAI_REQUEST_READER_H_

#include <optional>
#include <string>
#include <vector>

#include "src/server/api/json_fields.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

inline constexpr int kMostLogprobs = 20;

// Reads one request; the first error stands.
class RequestReader {
 public:
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

 protected:
  RequestReader(Endpoint endpoint, const Json& body, const RequestDefaults& defaults);
  ~RequestReader() = default;

  // Takes a field from the shared ones. Returns its name, for `own_`.
  const std::string& Own(const std::string& name);
  void ReadModel();
  // Reads log-probabilities of a chat.
  void ReadChatOutput();
  // Reads `echo` and the grammar of a completion, which has no template that would say where its
  // text begins.
  void ReadTextGrammar();
  // Reads sampling, lengths, stops, streaming, caching, sessions and `ebb`, and refuses constraints
  // that are not built.
  void ReadShared();
  [[nodiscard]] std::vector<Token> TokensOf(const Json& json, const std::string& path);
  // Returns the request, which names the fields that no reader took, or the error.
  [[nodiscard]] ApiResult<CompletionRequest> Take(ReadScope scope = ReadScope::kAnswer);
  void Fail(const std::string& path, const std::string& message,
            std::string code = "invalid_value");

  const RequestDefaults& defaults_;
  const Json& body_;
  std::optional<ApiError> error_;
  JsonFields own_;     // of the interface
  JsonFields fields_;  // that interfaces share
  CompletionRequest request_;
  bool leaves_out_empty_stops_ = false;  // else they are errors

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
