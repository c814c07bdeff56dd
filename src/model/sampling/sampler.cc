// Samples tokens by libllama's filters (filters.h), with a draw by Gumbel noise. Grammars are
// applied as in common_sampler: sample first, check the one token, and only if it is refused sample
// again among the tokens that the grammar admits. (common_sampler itself needs a llama_context,
// which ebb does not have.)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llama.h>

#include "ebb/sampler.h"
#include "src/model/loaded/loaded_model.h"
#include "src/model/sampling/filters.h"
#include "src/model/sampling/grammar.h"

namespace ebb {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

Status CheckRange(const char* name, double value, double min, double max) {
  if (value >= min && value <= max) return OkStatus();  // false for NaN
  return InvalidArgument(name,
                         fmt::format("expected a number from {} to {}, found {}", min, max, value));
}

Status Check(const SamplingOptions& options, int vocab_size) {
  constexpr double kMax = 1e6;
  constexpr double kMaxInt = std::numeric_limits<int>::max();
  EBB_RETURN_IF_ERROR(CheckRange("temperature", options.temperature, 0, kMax));
  EBB_RETURN_IF_ERROR(CheckRange("top_k", options.top_k, 0, kMaxInt));
  EBB_RETURN_IF_ERROR(CheckRange("top_p", options.top_p, 0, 1));
  EBB_RETURN_IF_ERROR(CheckRange("min_p", options.min_p, 0, 1));
  EBB_RETURN_IF_ERROR(CheckRange("repeat_penalty", options.repeat_penalty, 1e-3, kMax));
  EBB_RETURN_IF_ERROR(CheckRange("repeat_last_n", options.repeat_last_n, -1, kMaxInt));
  EBB_RETURN_IF_ERROR(CheckRange("presence_penalty", options.presence_penalty, -kMax, kMax));
  EBB_RETURN_IF_ERROR(CheckRange("frequency_penalty", options.frequency_penalty, -kMax, kMax));
  EBB_RETURN_IF_ERROR(CheckRange("min_keep", options.min_keep, 0, kMaxInt));
  EBB_RETURN_IF_ERROR(CheckRange("dynatemp_range", options.dynatemp_range, 0, kMax));
  EBB_RETURN_IF_ERROR(CheckRange("dynatemp_exponent", options.dynatemp_exponent, 0, kMax));
  EBB_RETURN_IF_ERROR(CheckRange("typical_p", options.typical_p, 0, 1));
  EBB_RETURN_IF_ERROR(CheckRange("top_n_sigma", options.top_n_sigma, -kMax, kMax));
  EBB_RETURN_IF_ERROR(CheckRange("xtc_probability", options.xtc_probability, 0, 1));
  EBB_RETURN_IF_ERROR(CheckRange("xtc_threshold", options.xtc_threshold, 0, 1));
  EBB_RETURN_IF_ERROR(CheckRange("dry_multiplier", options.dry_multiplier, 0, kMax));
  EBB_RETURN_IF_ERROR(CheckRange("dry_base", options.dry_base, 1, kMax));
  EBB_RETURN_IF_ERROR(CheckRange("dry_allowed_length", options.dry_allowed_length, 0, kMaxInt));
  EBB_RETURN_IF_ERROR(CheckRange("dry_penalty_last_n", options.dry_penalty_last_n, -1, 1e7));
  EBB_RETURN_IF_ERROR(CheckRange("mirostat", options.mirostat, 0, 2));
  EBB_RETURN_IF_ERROR(CheckRange("mirostat_tau", options.mirostat_tau, 0, kMax));
  EBB_RETURN_IF_ERROR(CheckRange("mirostat_eta", options.mirostat_eta, 0, kMax));
  constexpr double kMaxBias = 100;
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return InvalidArgument("logit_bias", fmt::format("expected a token from 0 to {}, found {}",
                                                       vocab_size - 1, token));
    }
    if (bias == kNever) continue;
    EBB_RETURN_IF_ERROR(CheckRange("logit_bias", bias, -kMaxBias, kMaxBias));
  }
  return OkStatus();
}

}  // namespace

// Seen is the way by which the sampler got a token of its history.
enum class Seen : uint8_t {
  kByChain = 0,       // forced, or sampled while the grammar was left aside
  kByGrammarToo = 1,  // sampled under it
  kOpen = 2,          // sampled before it was decided whether the grammar holds
};

struct Sampler::Impl {
  explicit Impl(Filters filters_in) : filters(std::move(filters_in)) {}

  const Model* model = nullptr;
  Filters filters;
  std::map<Token, float> logit_bias;
  std::vector<Token> tokens;                 // of the history
  std::vector<Seen> seen;                    // [tokens]
  std::unique_ptr<Grammar> grammar;          // null: none
  bool has_open = false;                     // some of `seen` is kOpen
  std::unique_ptr<Grammar> open_grammar;     // of has_open; see OpenGrammar()
  std::vector<llama_token_data> candidates;  // [vocab_size]
  llama_token_data_array drawn = {};         // candidates left by the filters in the last draw

  // Returns all tokens as candidates. A logit that is not finite becomes one that never wins, since
  // comparing NaN would break samplers that sort.
  [[nodiscard]] llama_token_data_array Candidates(std::span<const float> logits) {
    const size_t count = std::min(logits.size(), candidates.size());
    for (size_t i = 0; i < count; ++i) {
      candidates[i] = {static_cast<llama_token>(i), std::isfinite(logits[i]) ? logits[i] : kNever,
                       0.0F};
    }
    for (const auto& [token, bias] : logit_bias) {
      if (static_cast<size_t>(token) < count) candidates[token].logit += bias;
    }
    return {candidates.data(), count, -1, false};
  }
  static bool AnyPossible(const llama_token_data_array& array) {
    for (size_t i = 0; i < array.size; ++i) {
      if (array.data[i].logit != kNever) return true;
    }
    return false;
  }
  [[nodiscard]] Token Choose(llama_token_data_array array, Position position) {
    filters.Choose(position, &array);
    drawn = array;
    return array.data[array.selected].id;
  }
  // Returns the lead of the chosen token over the next best of the candidates that are left.
  [[nodiscard]] double Margin() const {
    if (!filters.is_greedy()) return filters.DrawMargin();
    float second = kNever;
    for (size_t i = 0; i < drawn.size; ++i) {
      if (static_cast<int64_t>(i) != drawn.selected) second = std::max(second, drawn.data[i].logit);
    }
    return drawn.size == 0 ? 0 : double{drawn.data[drawn.selected].logit} - second;
  }
  // Returns whether a token may come under the constraint. kOpen means that it is undecided whether
  // the answer has begun.
  [[nodiscard]] bool IsAdmitted(Token token, Constraint constraint, const Admits& also) const {
    if (constraint == Constraint::kFree) {
      return also == nullptr || grammar->waits() || also(token);
    }
    if (constraint == Constraint::kOpen && also != nullptr && also(token)) return true;
    const Grammar* const one = constraint == Constraint::kOpen ? OpenGrammar() : grammar.get();
    return one != nullptr && one->Admits(token);
  }
  // Returns the state of the grammar if the answer began with the open tokens, which were sampled
  // while that was undecided; null: the grammar admits no such answer.
  [[nodiscard]] const Grammar* OpenGrammar() const {
    return has_open ? open_grammar.get() : grammar.get();
  }
  void AcceptOpen(Token token) {
    if (!has_open) open_grammar = grammar->Clone();
    has_open = true;
    if (open_grammar != nullptr && !open_grammar->Admits(token)) open_grammar.reset();
    if (open_grammar != nullptr) open_grammar->Accept(token);
  }
  // Bars the candidates that the constraint does not admit, all at once. A waiting grammar bars
  // none.
  void Bar(Constraint constraint, const Admits& also, llama_token_data_array* array) const {
    if (constraint == Constraint::kFree) return;
    if (constraint == Constraint::kGrammar) return grammar->Bar(array);
    std::vector<std::pair<size_t, float>> kept;
    for (size_t i = 0; i < array->size && also != nullptr; ++i) {
      if (also(array->data[i].id)) kept.emplace_back(i, array->data[i].logit);
    }
    if (const Grammar* one = OpenGrammar()) {
      one->Bar(array);
    } else {
      for (size_t i = 0; i < array->size; ++i) array->data[i].logit = kNever;
    }
    for (const auto& [i, logit] : kept) array->data[i].logit = logit;
  }
  [[nodiscard]] Logprobs LastDraw(int num_top) const {
    if (drawn.size == 0) return {.chosen = {.logprob = kNever}};
    const std::span<const llama_token_data> all(drawn.data, drawn.size);
    const Token token = all[drawn.selected].id;
    Logprobs result = {.chosen = {token, 0}};
    if (filters.is_greedy()) {
      if (num_top > 0) result.top.push_back(result.chosen);
      return result;
    }
    std::vector<float> logits;
    for (const llama_token_data& one : all) logits.push_back(one.logit);
    const double total = LogSumExp(logits);
    result.chosen.logprob = double{logits[drawn.selected]} - total;
    for (const llama_token_data& one : all) {
      if (one.logit != kNever) result.top.push_back({one.id, double{one.logit} - total});
    }
    const auto end = result.top.begin() + std::min<ptrdiff_t>(num_top, std::ssize(result.top));
    std::partial_sort(result.top.begin(), end, result.top.end(),
                      [](const TokenLogprob& a, const TokenLogprob& b) {
                        return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
                      });
    result.top.erase(end, result.top.end());
    return result;
  }
  // Returns a token that ends the answer, even if it is masked or biased away, because a fulfilled
  // grammar admits nothing else.
  Result<Token> EndUnder(Constraint constraint) {
    const Grammar* const one = constraint == Constraint::kOpen ? OpenGrammar() : grammar.get();
    const auto vocab_size = static_cast<Token>(candidates.size());
    for (Token token = 0; token < vocab_size && one != nullptr && !one->waits(); ++token) {
      if (!model->EndsGeneration(token) || !one->Admits(token)) continue;
      drawn = {};
      return token;
    }
    return InvalidArgument("grammar", "the grammar admits no further token");
  }
  // Chooses among admitted tokens. A waiting grammar can refuse a token but cannot list the others
  // that it would refuse, so refused tokens are excluded one after the other.
  Result<Token> ChooseAdmitted(std::span<const float> logits, Position position, Token refused,
                               Constraint constraint, const Admits& also) {
    std::vector<Token> all_refused = {refused};
    while (true) {
      llama_token_data_array admitted = Candidates(logits);
      Bar(constraint, also, &admitted);
      EBB_RETURN_IF_ERROR(CheckGrammarCost());
      for (const Token token : all_refused) admitted.data[token].logit = kNever;
      if (!AnyPossible(admitted)) return EndUnder(constraint);
      const Token token = Choose(admitted, position);
      if (IsAdmitted(token, constraint, also)) return token;
      all_refused.push_back(token);
    }
  }
  [[nodiscard]] Status CheckGrammarCost() const {
    const bool is_overrun =
        grammar->is_overrun() || (open_grammar != nullptr && open_grammar->is_overrun());
    if (!is_overrun) return OkStatus();
    return InvalidArgument("grammar",
                           "the grammar is too ambiguous: the answer so far can be read in so many "
                           "ways that its next token would take too long");
  }
  Result<Token> Sample(std::span<const float> logits, Position position, Constraint constraint,
                       const Admits& also) {
    const llama_token_data_array all = Candidates(logits);
    if (!AnyPossible(all)) return Corrupt("the logits of the step hold no number");
    Token token = Choose(all, position);
    if (grammar == nullptr) return token;
    if (!IsAdmitted(token, constraint, also)) {
      EBB_ASSIGN_OR_RETURN(token, ChooseAdmitted(logits, position, token, constraint, also));
    }
    EBB_RETURN_IF_ERROR(CheckGrammarCost());
    if (constraint == Constraint::kGrammar) grammar->Accept(token);
    if (constraint == Constraint::kOpen) AcceptOpen(token);
    return token;
  }
  void Remember(Token token, Seen how) {
    tokens.push_back(token);
    seen.push_back(how);
    filters.Append(token);
  }
  // Adjusts mirostat to the token that Sample() chose.
  void Observe() {
    if (!filters.mirostat_mu().has_value() || drawn.size == 0) return;
    double sum = 0;
    const float chosen = drawn.data[drawn.selected].logit;
    for (size_t i = 0; i < drawn.size; ++i) sum += std::exp(double{drawn.data[i].logit} - chosen);
    filters.ObserveChosen(1 / sum);
  }
  Status SeeAgain(Token token, Seen how) {
    if (how == Seen::kByChain || grammar == nullptr) return OkStatus();
    if (how == Seen::kOpen) {
      AcceptOpen(token);
      return OkStatus();
    }
    if (!grammar->Admits(token)) {
      return InvalidArgument("the grammar does not admit the answer so far");
    }
    grammar->Accept(token);
    return CheckGrammarCost();
  }
};

Sampler::Sampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sampler::~Sampler() = default;

Result<std::unique_ptr<Sampler>> Sampler::Create(const Model& model,
                                                 const SamplingOptions& options) {
  EBB_RETURN_IF_ERROR(Check(options, model.shape().vocab_size));
  const llama_vocab* vocab = llama_model_get_vocab(model.loaded().vocab_model.get());
  std::unique_ptr<Sampler> sampler(
      new Sampler(std::make_unique<Impl>(Filters(vocab, options, model.shape().trained_context))));
  sampler->impl_->model = &model;
  sampler->impl_->logit_bias = options.logit_bias;
  sampler->impl_->candidates.resize(llama_vocab_n_tokens(vocab));
  if (!options.grammar.empty()) {
    EBB_ASSIGN_OR_RETURN(sampler->impl_->grammar, Grammar::Create(model, options));
  }
  return sampler;
}

std::unique_ptr<Sampler> Sampler::Clone() const {
  std::unique_ptr<Sampler> clone(new Sampler(std::make_unique<Impl>(impl_->filters)));
  Impl& impl = *clone->impl_;
  impl.model = impl_->model;
  impl.logit_bias = impl_->logit_bias;
  impl.tokens = impl_->tokens;
  impl.seen = impl_->seen;
  if (impl_->grammar != nullptr) impl.grammar = impl_->grammar->Clone();
  impl.has_open = impl_->has_open;
  if (impl_->open_grammar != nullptr) impl.open_grammar = impl_->open_grammar->Clone();
  impl.candidates.resize(impl_->candidates.size());
  return clone;
}

Logprobs Sampler::LastDraw(int num_top) const { return impl_->LastDraw(num_top); }

double Sampler::margin() const { return impl_->Margin(); }

Result<Token> Sampler::Sample(std::span<const float> logits, Position position,
                              Constraint constraint, const Admits& also) {
  try {
    const Result<Token> token = impl_->Sample(logits, position, constraint, also);
    if (!token.ok()) return token;
    impl_->Observe();
    Seen how = Seen::kByChain;
    if (impl_->grammar != nullptr && constraint == Constraint::kGrammar) how = Seen::kByGrammarToo;
    if (impl_->grammar != nullptr && constraint == Constraint::kOpen) how = Seen::kOpen;
    impl_->Remember(*token, how);
    return token;
  } catch (const std::exception& error) {
    return Internal(fmt::format("the sampler failed: {}", error.what()));
  }
}

void Sampler::Settle(Constraint constraint) {
  if (!impl_->has_open) return;
  const bool are_of_answer = constraint == Constraint::kGrammar && impl_->open_grammar != nullptr;
  if (are_of_answer) impl_->grammar = std::move(impl_->open_grammar);
  std::ranges::replace(impl_->seen, Seen::kOpen,
                       are_of_answer ? Seen::kByGrammarToo : Seen::kByChain);
  impl_->open_grammar.reset();
  impl_->has_open = false;
}

bool Sampler::HasActiveGrammar() const {
  return impl_->grammar != nullptr && !impl_->grammar->waits();
}

void Sampler::Accept(Token token) { impl_->Remember(token, Seen::kByChain); }

void Sampler::SetText(std::span<const Token> text, size_t answer_begin) {
  impl_->filters.SetText(text, answer_begin);
}

void Sampler::SaveState(StateWriter* to) const {
  std::vector<uint8_t> seen;
  for (const Seen how : impl_->seen) seen.push_back(static_cast<uint8_t>(how));
  to->Numbers<Token>(impl_->tokens);
  to->Numbers<uint8_t>(seen);
  std::vector<float> mirostat;
  if (const auto mu = impl_->filters.mirostat_mu()) mirostat.push_back(*mu);
  to->Numbers<float>(mirostat);
}

Status Sampler::LoadState(StateReader* from) {
  const auto tokens = from->Numbers<Token>();
  const auto seen = from->Numbers<uint8_t>();
  const auto mirostat = from->Numbers<float>();
  if (mirostat.size() > 1 || (mirostat.size() == 1 && !std::isfinite(mirostat.front()))) {
    from->Fail("mirostat with no number, or several");
  }
  if (seen.size() != tokens.size()) from->Fail("a sampler with unknown tokens");
  for (size_t i = 0; i < seen.size() && from->ok(); ++i) {
    if (seen[i] > static_cast<uint8_t>(Seen::kOpen))
      from->Fail("an unknown kind of token in the history");
    if (tokens[i] < 0 || tokens[i] >= impl_->model->shape().vocab_size) {
      from->Fail(fmt::format("token {} is not in the vocabulary", tokens[i]));
    }
  }
  EBB_RETURN_IF_ERROR(from->status());
  if (!mirostat.empty()) impl_->filters.SetMirostatMu(mirostat.front());
  try {
    for (size_t i = 0; i < seen.size(); ++i) {
      EBB_RETURN_IF_ERROR(impl_->SeeAgain(tokens[i], static_cast<Seen>(seen[i])));
      impl_->Remember(tokens[i], static_cast<Seen>(seen[i]));
    }
  } catch (const std::exception& error) {
    return Internal(fmt::format("the sampler failed: {}", error.what()));
  }
  return OkStatus();
}

const Model& Sampler::model() const { return *impl_->model; }

}  // namespace ebb
