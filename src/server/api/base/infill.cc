#include "src/server/api/base/infill.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

// kRepositoryName and the constants below are llama-server's names for a repository and files that
// a request does not name: Qwen2.5-Coder was trained with names before files.
constexpr std::string_view kRepositoryName = "myproject\n";
constexpr std::string_view kFileName = "filename\n";
constexpr std::string_view kNamelessFile = "tmp";
// kSnippet separates files if the vocabulary has no token for that.
constexpr std::string_view kSnippet = "\n\n--- snippet ---\n\n";

// TokenRow collects the tokens of several texts; it keeps the first error.
class TokenRow {
 public:
  explicit TokenRow(const Model& model) : model_(model) {}
  void Add(std::string_view text) {
    if (!status_.ok()) return;
    Result<std::vector<Token>> more =
        model_.Tokenize(text, Model::AddBos::kNo, Model::Specials::kAsText);
    status_ = more.status();
    if (more.ok()) tokens_.insert(tokens_.end(), more->begin(), more->end());
  }
  void Add(Token token) { tokens_.push_back(token); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] std::vector<Token> Take() { return std::move(tokens_); }

 private:
  const Model& model_;
  Status status_;
  std::vector<Token> tokens_;
};

// Adds the repository, the files, and the name of the file that is filled in.
void AddFiles(const InfillTokens& marks, const InfillRequest& request, TokenRow* row) {
  if (marks.repository.has_value()) {
    row->Add(*marks.repository);
    row->Add(kRepositoryName);
  }
  for (const InfillRequest::File& file : request.files) {
    if (marks.file.has_value()) {
      row->Add(*marks.file);
      row->Add(file.name + "\n");
    } else {
      row->Add(kSnippet);
    }
    row->Add(file.text);
  }
  if (marks.file.has_value()) {
    row->Add(*marks.file);
    row->Add(kFileName);
  }
}

void KeepEnd(size_t most, std::vector<Token>* tokens) {
  if (tokens->size() > most)
    tokens->erase(tokens->begin(), tokens->end() - static_cast<ptrdiff_t>(most));
}

}  // namespace

InfillRequest ReadInfill(JsonFields* fields) {
  InfillRequest request;
  for (const auto& [name, to] :
       {std::pair("input_prefix", &request.prefix), std::pair("input_suffix", &request.suffix)}) {
    auto text = fields->Text(name);
    if (!text.has_value()) fields->Fail(name, "expected a text", "missing_field");
    if (text.has_value()) *to = *std::move(text);
  }
  request.prompt = fields->Text("prompt").value_or("");
  const Json* extra = fields->Array("input_extra");
  for (size_t i = 0; extra != nullptr && i < extra->size() && fields->ok(); ++i) {
    const Json& file = (*extra)[i];
    const std::string path = fmt::format("input_extra[{}]", i);
    const auto is_text = [&](const char* name) {
      return file.contains(name) && file[name].is_string();
    };
    if (!file.is_object() || !is_text("text")) {
      fields->Fail(path, "expected an object with text, which is a string", "invalid_type");
    } else if (file.contains("filename") && !is_text("filename")) {
      fields->Fail(path + ".filename", "expected a string", "invalid_type");
    } else {
      request.files.push_back({.name = file.value("filename", std::string(kNamelessFile)),
                               .text = file["text"].get<std::string>()});
    }
  }
  return request;
}

ApiResult<std::vector<Token>> InfillPrompt(const Model& model, const InfillRequest& request,
                                           size_t most) {
  const InfillTokens marks = model.infill_tokens();
  if (!marks.prefix.has_value() || !marks.suffix.has_value() || !marks.middle.has_value()) {
    return ApiError{
        .status = 501,
        .message = "the model has no tokens for the prefix, suffix and middle of a text",
        .code = "unsupported_endpoint"};
  }
  TokenRow files_row(model), prefix_row(model), suffix_row(model), prompt_row(model);
  AddFiles(marks, request, &files_row);
  prefix_row.Add(request.prefix);
  suffix_row.Add(request.suffix);
  prompt_row.Add(request.prompt);
  for (const TokenRow* row : {&files_row, &prefix_row, &suffix_row, &prompt_row}) {
    if (!row->status().ok()) return ErrorFrom(row->status());
  }
  std::vector<Token> files = files_row.Take(), prefix = prefix_row.Take(),
                     suffix = suffix_row.Take(), prompt = prompt_row.Take();
  const Result<std::vector<Token>> begin =
      model.Tokenize("", Model::AddBos::kAsModelSays, Model::Specials::kAsText);
  if (!begin.ok()) return ErrorFrom(begin.status());

  const size_t fixed = prompt.size() + begin->size() + 3;
  size_t room = most - std::min(most, fixed);
  const size_t left_by_prefix = room - std::min(room, prefix.size());
  suffix.resize(std::min(suffix.size(), std::max(room / 4, left_by_prefix)));
  room -= suffix.size();
  KeepEnd(room, &prefix);
  room -= prefix.size();
  KeepEnd(room, &files);

  std::vector<Token> tokens = std::move(files);
  const auto add = [&](const std::vector<Token>& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  add(*begin);
  tokens.push_back(*marks.prefix);
  add(prefix);
  add(prompt);
  tokens.push_back(*marks.suffix);
  add(suffix);
  tokens.push_back(*marks.middle);
  return tokens;
}

}  // namespace ebb::server
