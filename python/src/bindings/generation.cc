// Generations and conversations.
#include <algorithm>
#include <chrono>
#include <utility>

#include "sessions.h"

namespace ebb::python {
namespace {

using Clock = std::chrono::steady_clock;

GenerateOptions ReadGenerate(const nb::dict& dict) {
  GenerateOptions options;
  options.max_tokens = Get<int>(dict, "max_tokens").value_or(-1);
  options.min_tokens = Get<int>(dict, "min_tokens").value_or(0);
  options.stops = Get<std::vector<std::string>>(dict, "stop").value_or(std::vector<std::string>());
  options.thinking_budget = Get<int>(dict, "thinking_budget").value_or(-1);
  if (Get<bool>(dict, "ignore_eos").value_or(false)) {
    options.on_end = GenerateOptions::OnEnd::kIgnore;
  }
  return options;
}

struct PyConversation {
  Conversation talk;
};

nb::dict DictOf(const GenerateResult& result) {
  nb::dict dict;
  dict["text"] = TextOf(result.text);
  dict["thought"] = TextOf(std::string_view(result.text).substr(0, result.thought_bytes));
  dict["answer"] = TextOf(std::string_view(result.text).substr(result.thought_bytes));
  dict["finish_reason"] = std::string(FinishReasonName(result.finish_reason));
  dict["error"] = result.error.ok() ? nb::none() : nb::object(TextOf(result.error.Text()));
  dict["generated_tokens"] = result.generated_tokens;
  dict["thought_tokens"] = result.thought_tokens;
  dict["decode_steps"] = result.decode_steps;
  dict["seconds"] = result.seconds;
  return dict;
}

// Moves of rows between tiers, by comparing a ledger with itself a step ago.
class MoveWatch {
 public:
  explicit MoveWatch(const Ledger* ledger) : ledger_(ledger) {
    if (ledger_ == nullptr) return;
    before_.resize(static_cast<size_t>(ledger_->num_groups()));
    for (int group = 0; group < ledger_->num_groups(); ++group) Remember(group);
  }

  // (group, position, from, to) of each row that moved since the last call.
  nb::list Moves() {
    nb::list moves;
    if (ledger_ == nullptr) return moves;
    for (int group = 0; group < ledger_->num_groups(); ++group) {
      const std::span<const Tier> now = ledger_->tiers(group);
      const auto& before = before_[static_cast<size_t>(group)];
      const size_t common = std::min(before.size(), now.size());
      // A token that has just come was in T0.
      if (std::equal(before.begin(), before.begin() + common, now.begin()) &&
          std::all_of(now.begin() + common, now.end(), [](Tier t) { return t == Tier::kT0; })) {
        if (before.size() != now.size()) Remember(group);
        continue;
      }
      for (size_t i = 0; i < now.size(); ++i) {
        const Tier from = i < common ? before[i] : Tier::kT0;
        if (from == now[i]) continue;
        moves.append(nb::make_tuple(group, static_cast<Position>(i), static_cast<int>(from),
                                    static_cast<int>(now[i])));
      }
      Remember(group);
    }
    return moves;
  }

 private:
  void Remember(int group) {
    const auto tiers = ledger_->tiers(group);
    before_[static_cast<size_t>(group)].assign(tiers.begin(), tiers.end());
  }

  const Ledger* const ledger_;
  std::vector<std::vector<Tier>> before_;  // [groups][positions]
};

// Keeps a session for one generation, since two would mix their tokens.
class Claim {
 public:
  // Raises if another generation has the session.
  explicit Claim(HolderPtr holder) : holder_(std::move(holder)) {
    if (Take()) return;
    Raise(InvalidArgument(
        "the session has a generation that has not ended, and the tokens of two would be mixed; "
        "run it to its end or close() it, or open another session"));
  }
  ~Claim() { Release(); }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // Returns whether no other generation has the session.
  bool Take() {
    const void* now = nullptr;
    return holder_->generating.compare_exchange_strong(now, this) || now == this;
  }
  void Release() {
    const void* now = this;
    holder_->generating.compare_exchange_strong(now, nullptr);
  }

 private:
  const HolderPtr holder_;
};

// ebb.Generation's core: a generation that Python code takes token by token.
class PyGeneration {
 public:
  PyGeneration(HolderPtr holder, std::unique_ptr<Claim> claim, std::unique_ptr<Sampler> sampler,
               GenerateOptions options)
      : holder_(std::move(holder)), claim_(std::move(claim)), sampler_(std::move(sampler)) {
    options.on_text = [this](std::string_view text, TextPart part) {
      text_.append(text);
      part_ = part;
      return true;
    };
    options.on_token = [this](Token token) { token_ = token; };
    EngineTurn::Hold turn(holder_->turn);
    watch_.emplace(holder_->session->ledger());
    generation_ =
        std::make_unique<Generation>(holder_->session.get(), sampler_.get(), std::move(options));
  }
  ~PyGeneration() {
    if (generation_ == nullptr) return;
    // Its session may be another thread's by now; ending only settles the text.
    generation_.reset();
  }
  PyGeneration(const PyGeneration&) = delete;
  PyGeneration& operator=(const PyGeneration&) = delete;

  // The turn of a conversation that the generation answers.
  void Answers(nb::object conversation, Turn turn) {
    conversation_ = std::move(conversation);
    turn_ = std::move(turn);
  }

  // (token or None, text, part, moves, evicted); None at the end.
  nb::object Next() {
    while (true) {
      if (result_.has_value()) {
        if (error_to_raise_) {
          error_to_raise_ = false;
          Raise(result_->error);
        }
        return nb::none();
      }
      holder_->failure->RaiseIfSet();
      if (!claim_->Take()) {
        Raise(InvalidArgument("another generation of this session has begun meanwhile"));
      }
      token_.reset();
      text_.clear();
      int64_t num_evicted = 0;
      {
        EngineTurn::Hold turn(holder_->turn);
        WithoutGil([&] {
          const std::optional<Token> token = generation_->Next();
          if (!token.has_value()) return Finish();
          const Clock::time_point start = Clock::now();
          const StepOutcome outcome =
              holder_->session->Decode(*token, generation_->Guesses(), generation_->most_guesses());
          const std::chrono::duration<double> seconds = Clock::now() - start;
          generation_->Appended(outcome, seconds.count());
          num_evicted = holder_->session->last_step().rows_evicted;
        });
      }
      holder_->failure->RaiseIfSet();
      if (token_.has_value() || !text_.empty()) {
        const nb::object token = token_.has_value() ? nb::cast(*token_) : nb::none();
        nb::object item = nb::make_tuple(token, TextOf(text_), part_ == TextPart::kThought,
                                         watch_->Moves(), num_evicted);
        CheckSignalsBetweenSteps();
        return item;
      }
      CheckSignalsBetweenSteps();
    }
  }

  // Ends the generation after the tokens generated so far.
  nb::dict End() {
    if (!result_.has_value()) {
      text_.clear();
      EngineTurn::Hold turn(holder_->turn);
      Finish();
    }
    nb::dict dict = DictOf(*result_);
    if (message_.has_value()) {
      dict["reasoning_content"] = TextOf(message_->reasoning_content);
      dict["content"] = TextOf(message_->content);
    }
    return dict;
  }
  [[nodiscard]] bool has_ended() const { return result_.has_value(); }
  void EndThought() {
    if (generation_ != nullptr) generation_->EndThought();
  }

 private:
  // An interrupted generation may be continued, or another one begun.
  void CheckSignalsBetweenSteps() {
    try {
      CheckSignals();
    } catch (nb::python_error&) {
      claim_->Release();
      throw;
    }
  }
  void Finish() {
    result_ = generation_->End();
    generation_.reset();
    claim_->Release();
    error_to_raise_ = result_->finish_reason == FinishReason::kError;
    if (!turn_.has_value() || error_to_raise_) return;
    if (auto message = AnswerMessage(turn_->prompt, *result_); message.ok()) {
      message_ = *std::move(message);
    }
    nb::gil_scoped_acquire gil;
    EndTurn(*turn_, *result_, SavedState(*sampler_),
            &nb::cast<PyConversation&>(conversation_).talk);
  }

  const HolderPtr holder_;
  const std::unique_ptr<Claim> claim_;
  const std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Generation> generation_;
  std::optional<MoveWatch> watch_;
  nb::object conversation_;
  std::optional<Turn> turn_;
  std::optional<ChatMessage> message_;
  std::optional<Token> token_;  // chosen by the last Next()
  std::string text_;            // shown by it
  TextPart part_ = TextPart::kAnswer;
  std::optional<GenerateResult> result_;
  bool error_to_raise_ = false;
};

std::unique_ptr<PyGeneration> Generate(PySession& session, nb::handle prompt,
                                       const nb::dict& dict) {
  const HolderPtr& holder = Sound(session).holder;
  auto claim = std::make_unique<Claim>(holder);
  const Model& model = *holder->model;
  auto sampler = ValueOrRaise(Sampler::Create(model, ReadSampling(dict)));
  if (!prompt.is_none()) {
    const std::vector<Token> tokens = TokensOf(model, prompt);
    Prefill(holder, tokens, dict.contains("progress") ? nb::object(dict["progress"]) : nb::none());
  }
  return std::make_unique<PyGeneration>(holder, std::move(claim), std::move(sampler),
                                        ReadGenerate(dict));
}

std::unique_ptr<PyGeneration> Chat(PySession& session, nb::object conversation,
                                   const std::vector<std::pair<std::string, std::string>>& messages,
                                   const nb::dict& dict) {
  const HolderPtr& holder = Sound(session).holder;
  auto claim = std::make_unique<Claim>(holder);
  const Model& model = *holder->model;
  PyConversation& talk = nb::cast<PyConversation&>(conversation);
  if (const auto think = Get<bool>(dict, "think")) {
    talk.talk.request.thinking = *think ? Thinking::kModelDefault : Thinking::kOff;
  }
  std::vector<ChatMessage> said;
  for (const auto& [role, content] : messages) said.push_back({role, content});
  Turn turn = ValueOrRaise(
      WithoutGil([&] { return BeginTurn(model, talk.talk, said, holder->session->context()); }));
  auto sampler = ValueOrRaise(SamplerFor(turn, model, ReadSampling(dict)));
  const std::span<const Token> unread = ValueOrRaise(
      InTurn(holder, [&](Session& session) { return KeepPrefix(turn.tokens, &session); }));
  Prefill(holder, unread, dict.contains("progress") ? nb::object(dict["progress"]) : nb::none());
  auto generation = std::make_unique<PyGeneration>(holder, std::move(claim), std::move(sampler),
                                                   OptionsFor(turn, ReadGenerate(dict)));
  generation->Answers(std::move(conversation), std::move(turn));
  return generation;
}

}  // namespace

void BindGenerations(nb::module_& module, nb::class_<PySession>* session) {
  nb::class_<PyGeneration>(module, "Generation", "The core of ebb.Generation.")
      .def("next", &PyGeneration::Next)
      .def("end", &PyGeneration::End)
      .def("end_thought", &PyGeneration::EndThought)
      .def_prop_ro("has_ended", &PyGeneration::has_ended);

  nb::class_<PyConversation>(module, "Conversation", "The core of a chat: its messages.")
      .def(nb::init<>())
      .def(
          "add",
          [](PyConversation& self, const std::string& role, const std::string& content) {
            self.talk.request.messages.push_back({role, content});
          },
          nb::arg("role"), nb::arg("content"))
      .def_prop_ro("messages",
                   [](const PyConversation& self) {
                     nb::list list;
                     for (const ChatMessage& message : self.talk.request.messages) {
                       nb::dict dict;
                       dict["role"] = message.role;
                       dict["content"] = TextOf(message.content);
                       list.append(dict);
                     }
                     return list;
                   })
      .def("encode",
           [](const PyConversation& self) {
             const std::string bytes = EncodeConversation(self.talk);
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def_static("decode", [](nb::bytes bytes) {
        return PyConversation{ValueOrRaise(DecodeConversation({bytes.c_str(), bytes.size()}))};
      });

  session->def("generate", &Generate, nb::arg("prompt").none(), nb::arg("options"))
      .def("chat", &Chat, nb::arg("conversation"), nb::arg("messages"), nb::arg("options"));
}

}  // namespace ebb::python
