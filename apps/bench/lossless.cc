// Compares lossless generation with the full cache in memory, and with a cache that reads T1 for
// every token. The three run alternately, each generating its own text, or all decoding one given
// text (--accept).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/bench_options.h"
#include "apps/bench/commands.h"
#include "apps/bench/lossless_side.h"
#include "apps/bench/session.h"
#include "apps/common/lossless_record.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/progress.h"

namespace ebb::cli {
namespace {

constexpr std::string_view kBeginning = "Once upon a time";

std::vector<double> Ratios(const BenchSide& of, const BenchSide& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < of.tokens_per_s.size(); ++i) {
    ratios.push_back(of.tokens_per_s[i] / to.tokens_per_s[i]);
  }
  return ratios;
}

class Bench {
 public:
  Bench(const CliOptions& options, std::shared_ptr<const Model> model)
      : options_(options),
        model_(std::move(model)),
        cancel_(InstallInterruptHandler()),
        invented_(model_->shape().vocab_size, options.seed),
        forced_text_(options.Of<BenchOptions>().accept.value_or(1), model_->shape().vocab_size,
                     options.seed + 1) {}

  Status Begin();
  // Fills all three sessions up to `depth`: by a prefill if the text is random (--accept), else
  // with text that the model generates. The lossless session generates its own text, so that its
  // draft length has adapted to the share of right drafts before the measurement.
  Status Fill(int depth);
  Status Measure(int depth);

 private:
  Status EnterTiers();
  Status Write(BenchSide* side, int depth);
  // Prefills up to `depth`: the full cache's session reads random tokens, and the others read that
  // session's tokens.
  Status Read(BenchSide* side, int depth);
  Status Report(int depth, const LosslessReport& lossless, double others_share) const;

  const CliOptions& options_;
  std::shared_ptr<const Model> model_;
  const std::atomic<bool>* cancel_;
  RandomTokens invented_;
  ForcedText forced_text_;
  std::vector<Token> beginning_;
  BenchSide full_, lossless_, tiers_;
};

Status Bench::Begin() {
  const BenchOptions& o = options_.Of<BenchOptions>();
  SessionOptions plain = options_.session;
  plain.lossless.reset();
  plain.policy = {};
  EngineOptions in_memory = options_.engine;
  in_memory.tiers.reset();
  EBB_ASSIGN_OR_RETURN(full_, Enter(model_, options_, in_memory, plain));
  SessionOptions lossless = options_.session;
  // With --accept, the share of right drafts is given, so that prompt lookup must not add others.
  if (o.accept.has_value()) lossless.lossless->looks_up = false;
  EBB_ASSIGN_OR_RETURN(lossless_, Enter(model_, options_, options_.engine, lossless));
  const int64_t measured = int64_t{o.tokens} * o.repetitions;
  for (size_t i = 1; i < o.depths.size(); ++i) {
    if (o.depths[i - 1] + measured <= o.depths[i]) continue;
    return InvalidArgument(fmt::format(
        "measuring {} tokens from depth {} on goes beyond depth {}; choose depths further apart",
        measured, o.depths[i - 1], o.depths[i]));
  }
  const int64_t longest = o.depths.back() + measured;
  if (longest > full_.session->context()) {
    return InvalidArgument(
        fmt::format("the measurement needs {} tokens, the context has {}; choose a smaller depth",
                    longest, full_.session->context()));
  }
  EBB_ASSIGN_OR_RETURN(beginning_, model_->Tokenize(kBeginning, Model::AddBos::kAsModelSays,
                                                    Model::Specials::kAsText));
  EBB_RETURN_IF_ERROR(full_.session->Prefill(beginning_).status);
  return lossless_.session->Prefill(beginning_).status;
}

// Opens the session that reads T1 for every token. Its T0 may have as many bytes as the lossless
// session's T0 at its peak. T1 has all other rows; a lossless session's T1 has every row.
Status Bench::EnterTiers() {
  SessionOptions session = options_.session;
  EngineOptions engine = options_.engine;
  engine.tiers = EngineTiers{.t0_cap_bytes = lossless_.PeakOfT0(),
                             .t1 = options_.engine.tiers->t1,
                             .t1_path = options_.engine.tiers->t1_path};
  session.lossless.reset();
  session.policy = {.tiers = TierShares()};
  EBB_ASSIGN_OR_RETURN(tiers_, Enter(model_, options_, engine, session));
  return tiers_.session->Prefill(beginning_).status;
}

Status Bench::Write(BenchSide* side, int depth) {
  const int num_tokens = depth - static_cast<int>(side->session->next_position());
  // Asks for one more token, because Generate() samples the last token of a text but does not
  // decode it.
  return num_tokens > 0 ? side->Write(num_tokens + 1, cancel_) : OkStatus();
}

Status Bench::Read(BenchSide* side, int depth) {
  const Position there = side->session->next_position();
  if (depth <= there) return OkStatus();
  std::vector<Token> text;
  if (side == &full_) {
    text = invented_.Next(depth - there);
  } else {
    const auto of_full = full_.session->tokens().subspan(there, depth - there);
    text.assign(of_full.begin(), of_full.end());
  }
  return side->session->Prefill(text, {.cancel = cancel_}).status;
}

Status Bench::Fill(int depth) {
  const auto display = options_.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
  ProgressBar bar(fmt::format("writing the text before {}", depth), "sides", 3, display);
  const bool invents = options_.Of<BenchOptions>().accept.has_value();
  EBB_RETURN_IF_ERROR(invents ? Read(&full_, depth) : Write(&full_, depth));
  bar.Update(1);
  EBB_RETURN_IF_ERROR(invents ? Read(&lossless_, depth) : Write(&lossless_, depth));
  bar.Update(2);
  if (tiers_.engine == nullptr) EBB_RETURN_IF_ERROR(EnterTiers());
  EBB_RETURN_IF_ERROR(Read(&tiers_, depth));
  bar.Update(3);
  return OkStatus();
}

Status Bench::Measure(int depth) {
  const std::array<BenchSide*, 3> all = {&full_, &tiers_, &lossless_};
  for (BenchSide* side : all) side->tokens_per_s.clear();
  const LosslessReport before = *lossless_.session->lossless_report();
  const MachineWatch watch;
  for (int turn = 0; turn < options_.Of<BenchOptions>().repetitions; ++turn) {
    forced_text_.Invent(options_.Of<BenchOptions>().tokens);
    for (BenchSide* side : all) {
      EBB_RETURN_IF_ERROR(options_.Of<BenchOptions>().accept.has_value()
                              ? forced_text_.Feed(cancel_, side)
                              : side->Write(options_.Of<BenchOptions>().tokens, cancel_));
    }
  }
  const double others = watch.OthersShare();
  WarnOfOthers(others);
  return Report(depth, Since(before, *lossless_.session->lossless_report()), others);
}

Status Bench::Report(int depth, const LosslessReport& lossless, double others_share) const {
  const auto speed = [](const BenchSide& of) { return SpreadOf(of.tokens_per_s); };
  const Spread to_full = SpreadOf(Ratios(lossless_, full_));
  const Spread to_tiers = SpreadOf(Ratios(lossless_, tiers_));
  // Generate() does not decode the last token of a turn, but ForcedText decodes every token.
  const int steps =
      options_.Of<BenchOptions>().tokens - (options_.Of<BenchOptions>().accept.has_value() ? 0 : 1);
  const auto tokens = double(options_.Of<BenchOptions>().repetitions) * steps;
  const LosslessOptions& lossless_options = *options_.session.lossless;
  const std::string_view verify = VerifyName(lossless_options.verify);
  Json record = {
      {"bench", "lossless"},
      {"depth", depth},
      {"tokens", options_.Of<BenchOptions>().tokens},
      {"repetitions", options_.Of<BenchOptions>().repetitions},
      {"verify", verify},
      {"looks_up", lossless_options.looks_up},
      {"temperature", options_.sampling.temperature},
      {"repeat_penalty", options_.sampling.repeat_penalty},
      {"tokens_per_s", ToJson(speed(lossless_))},
      {"full", ToJson(speed(full_))},
      {"tiers", ToJson(speed(tiers_))},
      {"ratio_full", ToJson(to_full)},
      {"ratio_tiers", ToJson(to_tiers)},
      {"same_bits", lossless_.session->logits_hash() == full_.session->logits_hash()},
      {"same_tokens", std::ranges::equal(lossless_.session->tokens(), full_.session->tokens())},
      {"t0_peak_bytes", lossless_.PeakOfT0()},
      {"staging_bytes", lossless_.session->accounting().staging_bytes},
      {"tiers_t0_peak_bytes", tiers_.PeakOfT0()},
      {"full_peak_bytes", full_.PeakOfT0()},
      {"others_share", others_share}};
  AddLosslessFigures(lossless, tokens, &record);
  AddEngineFields(options_, *lossless_.engine, *lossless_.session, &record);
  const std::string text = fmt::format(
      "lossless ({}) from depth {}: {} tokens/s; {:.2f} ({:.2f} - {:.2f}) of the full cache in "
      "memory, {:.2f} ({:.2f} - {:.2f}) of tiers read for every token; {} of {} guesses right, {} "
      "of them looked up",
      verify, depth, ToText(speed(lossless_)), to_full.median, to_full.min, to_full.max,
      to_tiers.median, to_tiers.min, to_tiers.max, lossless.accepted, lossless.drafted,
      lossless.accepted_looked_up);
  return WriteRecord(options_, record, text);
}

}  // namespace

Status BenchLossless(const CliOptions& options) {
  if (!options.session.lossless.has_value()) {
    return InvalidArgument("lossless: --lossless is missing");
  }
  if (options.engine.tiers->t1 == T1Place::kNone) {
    return InvalidArgument("lossless: compares with reading T1; --t1 none has none");
  }
  EBB_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, OpenModel(options));
  CliOptions ordered = options;
  std::ranges::sort(ordered.Of<BenchOptions>().depths);
  Bench bench(ordered, std::move(model));
  EBB_RETURN_IF_ERROR(bench.Begin());
  for (const int depth : ordered.Of<BenchOptions>().depths) {
    EBB_RETURN_IF_ERROR(bench.Fill(depth));
    EBB_RETURN_IF_ERROR(bench.Measure(depth));
  }
  return OkStatus();
}

}  // namespace ebb::cli
