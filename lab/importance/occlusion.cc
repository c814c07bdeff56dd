#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "ebb/lab/importance.h"
#include "lab/eval/question_prompt.h"

namespace ebb {
namespace {

constexpr Position kLastTokens = 64;  // if no mark divides thought and answer (App. C)

struct Boundary {
  size_t num_tokens = 0;    // tokens of the model's text up to the mark, included
  std::string mark;         // empty: no mark was found
  bool in_thought = false;  // the mark is inside the thought
};

// DecodedText has the model's text, and where each token's text ends.
class DecodedText {
 public:
  DecodedText(const Model& model, const ChatPrompt& prompt, std::span<const Token> tokens) {
    for (const Token token : tokens) {
      text_ += ShownText(model, token, prompt.thinking_start, prompt.thinking_end);
      ends_.push_back(text_.size());
    }
  }

  // Returns the index of the token after the last occurrence of the mark; nullopt: the text does
  // not contain it.
  [[nodiscard]] std::optional<size_t> Behind(std::string_view mark) const {
    const size_t at = mark.empty() ? std::string::npos : text_.rfind(mark);
    if (at == std::string::npos) return std::nullopt;
    const auto last = std::ranges::lower_bound(ends_, at + mark.size());
    return static_cast<size_t>(last - ends_.begin()) + 1;
  }
  [[nodiscard]] bool Has(std::string_view mark, size_t up_to_token) const {
    return !mark.empty() && text_.substr(0, ends_[up_to_token - 1]).find(mark) != std::string::npos;
  }
  [[nodiscard]] size_t num_tokens() const { return ends_.size(); }

 private:
  std::string text_;
  std::vector<size_t> ends_;  // [tokens]: end in text_
};

std::optional<Boundary> FindBoundary(const DecodedText& written, const ChatPrompt& prompt,
                                     const std::string& asked) {
  std::optional<Boundary> found;
  const std::array<std::string, 2> usual = {prompt.thinking_end, "\\boxed{"};
  const auto marks = asked.empty() ? std::span<const std::string>(usual) : std::span(&asked, 1);
  for (const std::string& mark : marks) {
    const std::optional<size_t> behind = written.Behind(mark);
    if (!behind) continue;
    found = Boundary{.num_tokens = *behind, .mark = mark};
    break;
  }
  if (!found && asked.empty() && written.num_tokens() > kLastTokens) {
    found = Boundary{.num_tokens = written.num_tokens() - kLastTokens};
  }
  if (!found) return std::nullopt;
  found->in_thought =
      (prompt.opens_in_thinking || written.Has(prompt.thinking_start, found->num_tokens)) &&
      !written.Has(prompt.thinking_end, found->num_tokens);
  return found;
}

// Labeller labels the thought in the answer to one problem.
class Labeller {
 public:
  Labeller(Engine* engine, const EvalQuestion& problem, const OcclusionOptions& options)
      : engine_(engine), problem_(problem), options_(options) {}

  Result<LabelResult> Run() {
    EBB_RETURN_IF_ERROR(Open());
    EBB_ASSIGN_OR_RETURN(const std::vector<Token> written, Answer());
    if (!is_right_) return LabelResult{.outcome = LabelOutcome::kWrong};
    const std::optional<Boundary> found =
        FindBoundary(DecodedText(engine_->model(), prompt_, written), prompt_, options_.boundary);
    if (!found) return LabelResult{.outcome = LabelOutcome::kNoThought};
    boundary_ = *found;
    ImportanceLabels labels = {.tokens = prompt_tokens_};
    labels.thought_begin = static_cast<Position>(prompt_tokens_.size());
    labels.boundary = labels.thought_begin + static_cast<Position>(boundary_.num_tokens);
    labels.tokens.insert(labels.tokens.end(), written.begin(),
                         written.begin() + static_cast<ptrdiff_t>(boundary_.num_tokens));
    EBB_ASSIGN_OR_RETURN(const bool repeated, AnswersRight(labels.tokens, labels.boundary - 1));
    if (!repeated) return LabelResult{.outcome = LabelOutcome::kNotRepeated};
    EBB_RETURN_IF_ERROR(Occlude(&labels));
    return LabelResult{.labels = std::move(labels)};
  }

 private:
  Status Open() {
    const Model& model = engine_->model();
    EBB_ASSIGN_OR_RETURN(prompt_, PromptFor(model, problem_, options_.prompt_style));
    EBB_ASSIGN_OR_RETURN(prompt_tokens_,
                         model.TokenizePrompt(prompt_, Model::AddBos::kAsModelSays));
    EBB_ASSIGN_OR_RETURN(session_, engine_->OpenSession({}));
    return session_->Prefill(prompt_tokens_, {.cancel = options_.cancel}).status;
  }

  Result<GenerateResult> Continue(int max_tokens, bool in_thought, std::vector<Token>* tokens) {
    SamplingOptions greedy;
    greedy.temperature = 0;
    EBB_ASSIGN_OR_RETURN(const auto sampler, Sampler::Create(engine_->model(), greedy));
    GenerateOptions generate;
    generate.max_tokens = max_tokens;
    generate.stops = prompt_.stops;
    SetTags(prompt_, &generate);
    generate.opens_in_thinking = in_thought;
    generate.cancel = options_.cancel;
    if (tokens != nullptr) generate.on_token = [&](Token token) { tokens->push_back(token); };
    GenerateResult result = Generate(*session_, *sampler, generate);
    if (result.finish_reason == FinishReason::kCancelled) return Cancelled("interrupted");
    if (result.finish_reason == FinishReason::kError) return result.error;
    return result;
  }

  // Judges as `ebb-lab eval` does: only the part after the thought, if the thought ends.
  [[nodiscard]] bool IsRight(std::string_view text) const {
    std::string_view answer;
    const std::string& end = prompt_.thinking_end;
    const size_t at = end.empty() ? std::string::npos : text.rfind(end);
    if (at != std::string::npos) answer = text.substr(at + end.size());
    return problem_.judge(text, answer).verdict == Verdict::kRight;
  }

  Result<std::vector<Token>> Answer() {
    std::vector<Token> tokens;
    EBB_ASSIGN_OR_RETURN(const GenerateResult result,
                         Continue(problem_.max_tokens, prompt_.opens_in_thinking, &tokens));
    is_right_ = IsRight(result.text);
    return tokens;
  }

  // Returns whether the model answers right after these tokens. The session has already read those
  // before `from`.
  Result<bool> AnswersRight(std::span<const Token> tokens, Position from) {
    EBB_RETURN_IF_ERROR(session_->TruncateTo(from));
    EBB_RETURN_IF_ERROR(
        session_->Prefill(tokens.subspan(from), {.cancel = options_.cancel}).status);
    EBB_ASSIGN_OR_RETURN(const GenerateResult result,
                         Continue(options_.answer_tokens, boundary_.in_thought, nullptr));
    return IsRight(boundary_.mark + result.text);
  }

  // Occludes windows from the last to the first, so that the cache still has the part before a
  // window as it was generated.
  Status Occlude(ImportanceLabels* labels) {
    const Token padding = engine_->model().PaddingToken();
    labels->important.assign(labels->boundary, 0);
    std::fill_n(labels->important.begin(), labels->thought_begin, uint8_t{1});
    labels->num_windows =
        (labels->boundary - labels->thought_begin + options_.stride - 1) / options_.stride;
    std::vector<Token> occluded;
    for (int window = labels->num_windows - 1; window >= 0; --window) {
      const Position begin = labels->thought_begin + window * options_.stride;
      const Position size = std::min(options_.window, labels->boundary - begin);
      occluded = labels->tokens;
      std::fill_n(occluded.begin() + begin, size, padding);
      EBB_ASSIGN_OR_RETURN(const bool is_right, AnswersRight(occluded, begin));
      if (is_right) continue;
      ++labels->num_important_windows;
      std::fill_n(labels->important.begin() + begin, size, uint8_t{1});
    }
    return OkStatus();
  }

  Engine* const engine_;
  const EvalQuestion& problem_;
  const OcclusionOptions& options_;
  ChatPrompt prompt_;
  std::vector<Token> prompt_tokens_;
  std::unique_ptr<Session> session_;
  bool is_right_ = false;
  Boundary boundary_;
};

}  // namespace

std::string_view LabelOutcomeName(LabelOutcome outcome) {
  constexpr std::array<std::string_view, 4> kNames = {"labelled", "wrong", "no thought",
                                                      "not repeated"};
  return kNames[static_cast<size_t>(outcome)];
}

Result<LabelResult> LabelByOcclusion(Engine* engine, const EvalQuestion& problem,
                                     const OcclusionOptions& options) {
  if (options.window < 1 || options.stride < 1) {
    return InvalidArgument("a window of occlusion and its stride are at least 1 token");
  }
  return Labeller(engine, problem, options).Run();
}

}  // namespace ebb
