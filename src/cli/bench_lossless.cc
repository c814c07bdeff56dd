// A lossless generation against the same one from a full cache in memory, and against the same T1
// read for every token: the three take turns with one text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ebb/benchmark.h"
#include "ebb/generate.h"
#include "src/cli/bench_report.h"
#include "src/cli/bench_session.h"
#include "src/cli/commands.h"
#include "src/cli/progress.h"
#include "src/cli/setup.h"

namespace ebb::cli {
namespace {

constexpr std::string_view kBeginning = "Once upon a time";

// One that generates: alone in its engine, since engines keep their arenas' peaks.
struct Contestant {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;
  std::unique_ptr<Sampler> sampler;
  std::vector<double> tokens_per_s = {};  // by turn
};

Result<Contestant> Enter(const std::shared_ptr<const Model>& model, const CliOptions& options,
                         const EngineOptions& engine, const SessionOptions& session) {
  Contestant contestant;
  EBB_ASSIGN_OR_RETURN(contestant.engine, Engine::Create(model, engine));
  EBB_ASSIGN_OR_RETURN(contestant.session, OpenSession(*contestant.engine, session));
  EBB_ASSIGN_OR_RETURN(contestant.sampler, Sampler::Create(*model, options.sampling));
  return contestant;
}

// A part of the model's own text. The last token of each turn is chosen anew in the next one.
Result<std::vector<Token>> Write(int num_tokens, const std::atomic<bool>* cancel,
                                 Contestant* contestant) {
  GenerateResult result = Generate(
      *contestant->session, *contestant->sampler,
      {.max_tokens = num_tokens, .on_end = GenerateOptions::OnEnd::kIgnore, .cancel = cancel});
  EBB_RETURN_IF_ERROR(result.error);
  if (result.finish_reason == FinishReason::kCancelled) return Cancelled("interrupted");
  contestant->tokens_per_s.push_back(result.decode_steps / result.seconds);
  return std::move(result.answer.tokens);
}

// Given tokens, of whose successors guesses know so many.
class Teacher {
 public:
  Teacher(double known, int vocab_size, uint64_t seed)
      : known_(known), text_(vocab_size, seed), random_(seed), vocab_size_(vocab_size) {}

  void NextTurn(int num_tokens) { turn_ = text_.Next(static_cast<size_t>(num_tokens)); }
  void SetTurn(std::vector<Token> tokens) { turn_ = std::move(tokens); }
  Status Dictate(const std::atomic<bool>* cancel, Contestant* contestant, size_t from = 0) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = from; i < turn_.size(); ++i) {
      if (*cancel) return Cancelled("interrupted");
      EBB_RETURN_IF_ERROR(contestant->session->Decode(turn_[i], From(i + 1)));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    contestant->tokens_per_s.push_back(static_cast<double>(turn_.size()) / seconds.count());
    return OkStatus();
  }

 private:
  Guess From(size_t next) {
    return [this, next](std::span<const float>) mutable -> std::optional<Token> {
      if (next >= turn_.size()) return std::nullopt;
      const Token token = turn_[next++];
      if (std::uniform_real_distribution<>()(random_) < known_) return token;
      return (token + 1) % vocab_size_;
    };
  }

  double known_;
  RandomTokens text_;
  std::mt19937_64 random_;
  int vocab_size_;
  std::vector<Token> turn_;
};

// The full cache, the tiers without drafting and the lossless session.
struct Contest3 {
  Contestant full, tiers, lossless;
  [[nodiscard]] std::array<Contestant*, 3> all() { return {&full, &tiers, &lossless}; }
};

Result<Contest3> MakeContest(const std::shared_ptr<const Model>& model, const CliOptions& options) {
  Contest3 contest;
  SessionOptions plain = options.session;
  plain.lossless.reset();
  plain.policy = {};
  EngineOptions in_memory = options.engine;
  in_memory.tiers.reset();
  EBB_ASSIGN_OR_RETURN(contest.full, Enter(model, options, in_memory, plain));
  EBB_ASSIGN_OR_RETURN(contest.lossless, Enter(model, options, options.engine, options.session));
  // All of T1 in both: what lies in T0 would have to be taken from it for the drafts.
  EngineOptions in_tiers = options.engine;
  in_tiers.tiers = TierSpec{.t0_share = options.bench.t0_share,
                            .t1 = options.engine.tiers->t1,
                            .t1_path = options.engine.tiers->t1_path};
  plain.policy.tiers = in_tiers.tiers;
  EBB_ASSIGN_OR_RETURN(contest.tiers, Enter(model, options, in_tiers, plain));
  return contest;
}

// Brings all of them to `depth`, as generated tokens: given ones are protected in tiers.
Status Fill(int depth, const CliOptions& options, const std::atomic<bool>* cancel,
            Contest3* contest) {
  const Model& model = contest->full.engine->model();
  EBB_ASSIGN_OR_RETURN(
      const std::vector<Token> beginning,
      model.Tokenize(kBeginning, Model::AddBos::kAsModelSays, Model::Specials::kAsText));
  PrefillOptions prefill;
  prefill.cancel = cancel;
  for (Contestant* contestant : contest->all()) {
    EBB_RETURN_IF_ERROR(contestant->session->Prefill(beginning, prefill));
  }
  const int missing = depth - static_cast<int>(beginning.size());
  if (missing <= 0) return OkStatus();
  Teacher teacher(1, model.shape().vocab_size, options.seed);
  if (options.bench.accept.has_value()) {
    teacher.NextTurn(missing);
  } else {
    EBB_ASSIGN_OR_RETURN(std::vector<Token> written, Write(missing, cancel, &contest->full));
    teacher.SetTurn(std::move(written));
  }
  const auto display = options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
  ProgressBar bar("writing the text before", "contestants", 3, display);
  int64_t done = 0;
  for (Contestant* contestant : contest->all()) {
    const size_t there = contestant->session->next_position() - beginning.size();
    EBB_RETURN_IF_ERROR(teacher.Dictate(cancel, contestant, there));
    contestant->tokens_per_s.clear();
    bar.Update(++done);
  }
  return OkStatus();
}

LosslessReport Since(const LosslessReport& before, const LosslessReport& now) {
  return {.drafted = now.drafted - before.drafted,
          .accepted = now.accepted - before.accepted,
          .verify_steps = now.verify_steps - before.verify_steps,
          .bytes_read = now.bytes_read - before.bytes_read,
          .draft_seconds = now.draft_seconds - before.draft_seconds,
          .verify_seconds = now.verify_seconds - before.verify_seconds};
}

std::vector<double> Ratios(const Contestant& of, const Contestant& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < of.tokens_per_s.size(); ++i) {
    ratios.push_back(of.tokens_per_s[i] / to.tokens_per_s[i]);
  }
  return ratios;
}

Status Report(const CliOptions& options, const Contest3& contest, int depth,
              const LosslessReport& lossless, double others_share) {
  const auto speed = [](const Contestant& of) { return SpreadOf(of.tokens_per_s); };
  const Spread to_full = SpreadOf(Ratios(contest.lossless, contest.full));
  const Spread to_tiers = SpreadOf(Ratios(contest.lossless, contest.tiers));
  const auto turns = static_cast<double>(contest.full.tokens_per_s.size());
  const auto tokens = turns * options.bench.tokens;
  const auto resident = [](const Contestant& of) {
    return of.engine->arena_accounting(Tier::kT0).peak_bytes;
  };
  Json record = {
      {"bench", "lossless"},
      {"depth", depth},
      {"tokens", options.bench.tokens},
      {"repetitions", options.bench.repetitions},
      {"verify", VerifyName(options.session.lossless->verify)},
      {"tokens_per_s", ToJson(speed(contest.lossless))},
      {"full", ToJson(speed(contest.full))},
      {"tiers", ToJson(speed(contest.tiers))},
      {"ratio_full", ToJson(to_full)},
      {"ratio_tiers", ToJson(to_tiers)},
      {"same_bits", contest.lossless.session->logits_hash() == contest.full.session->logits_hash()},
      {"same_tokens",
       std::ranges::equal(contest.lossless.session->tokens(), contest.full.session->tokens())},
      {"drafted", lossless.drafted},
      {"accepted", lossless.accepted},
      {"verify_steps", lossless.verify_steps},
      {"bytes_read_per_token", static_cast<double>(lossless.bytes_read) / tokens},
      {"draft_s", lossless.draft_seconds},
      {"verify_s", lossless.verify_seconds},
      {"t0_peak_bytes", resident(contest.lossless)},
      {"full_peak_bytes", resident(contest.full)},
      {"others_share", others_share}};
  AddEngineFields(options, *contest.lossless.engine, *contest.lossless.session, &record);
  const std::string text = fmt::format(
      "lossless ({}) from depth {}: {} tokens/s; {:.2f} ({:.2f} - {:.2f}) of the full cache in "
      "memory, {:.2f} ({:.2f} - {:.2f}) of tiers read for every token; {} of {} guesses right",
      VerifyName(options.session.lossless->verify), depth, ToText(speed(contest.lossless)),
      to_full.median, to_full.min, to_full.max, to_tiers.median, to_tiers.min, to_tiers.max,
      lossless.accepted, lossless.drafted);
  return WriteRecord(options, record, text);
}

Status Run(const CliOptions& given) {
  CliOptions options = given;
  if (!options.session.lossless.has_value()) {
    return InvalidArgument("bench lossless: --lossless is missing");
  }
  const BenchOptions& o = options.bench;
  const std::atomic<bool>* cancel = InstallInterruptHandler();
  EBB_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, OpenModel(options));
  const int depth = o.depths.front();
  EBB_ASSIGN_OR_RETURN(Contest3 contest, MakeContest(model, options));
  const int64_t longest = depth + int64_t{o.tokens} * o.repetitions;
  if (longest > contest.full.session->context()) {
    return InvalidArgument(
        fmt::format("the measurement needs {} tokens, the context has {}; choose a smaller depth",
                    longest, contest.full.session->context()));
  }
  EBB_RETURN_IF_ERROR(Fill(depth, options, cancel, &contest));
  Teacher teacher(o.accept.value_or(1), model->shape().vocab_size, options.seed + 1);
  const LosslessReport before = *contest.lossless.session->lossless_report();
  const MachineWatch watch;
  for (int turn = 0; turn < o.repetitions; ++turn) {
    teacher.NextTurn(o.tokens);
    for (Contestant* contestant : contest.all()) {
      if (o.accept.has_value()) {
        EBB_RETURN_IF_ERROR(teacher.Dictate(cancel, contestant));
      } else {
        EBB_RETURN_IF_ERROR(Write(o.tokens, cancel, contestant).status());
      }
    }
  }
  const double others = watch.OthersShare();
  WarnOfOthers(others);
  return Report(options, contest, depth,
                Since(before, *contest.lossless.session->lossless_report()), others);
}

}  // namespace

ExitCode RunBenchLossless(const CliOptions& options) {
  const Status status = Run(options);
  return status.ok() ? ExitCode::kOk : Fail(status);
}

}  // namespace ebb::cli
