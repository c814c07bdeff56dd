// Implements `ebb device test`: checks that steps on a device give the right logits, measures them,
// and writes a report that a user can pass on.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/help.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/wrap.h"
#include "apps/ebb/device/commands.h"
#include "ebb/device.h"
#include "ebb/version.h"

namespace ebb::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPrompt = 96;
constexpr int kSteps = 160;
constexpr int kSpeedPrompt = 512;
constexpr int kSpeedSteps = 64;
// kMostKl is far above what rounding moves logits, and far below what a wrong product does.
constexpr double kMostKl = 0.1;

// Returns pseudo-random tokens that are the same on every machine.
std::vector<Token> SomeTokens(const Model& model, size_t count) {
  std::vector<Token> tokens;
  uint64_t state = 88172645463325252u;
  while (tokens.size() < count) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const auto token = static_cast<Token>(state % model.shape().vocab_size);
    if (!model.EndsGeneration(token)) tokens.push_back(token);
  }
  return tokens;
}

PolicySpec Evicting() {
  PolicySpec policy = {.name = "random", .granularity = Granularity::kHead};
  policy.budget = *ParseBudget("140");
  policy.window = 16;
  policy.interval = 8;
  policy.seed = 5;
  return policy;
}

TierSetting TiersWithT2() {
  return {.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt8},
          .shares = {.t2_share = 0.5}};
}

// Returns a policy that puts rows into T2. Its scores are random, so that rounding on the device
// changes no decision.
PolicySpec Compressing() {
  PolicySpec policy = {.name = "attention", .granularity = Granularity::kHead};
  policy.tiers = TiersWithT2().shares;
  policy.scorer = "random";
  policy.window = 16;
  policy.interval = 8;
  policy.seed = 5;
  return policy;
}

struct Passage {
  uint64_t hash = 0;
  std::vector<std::vector<float>> logits;  // after the prompt, and after each step
};

Result<Passage> Read(Session* session, std::span<const Token> tokens) {
  Passage passage;
  EBB_RETURN_IF_ERROR(session->Prefill(tokens.first(kPrompt)).status);
  const auto keep = [&] {
    passage.logits.emplace_back(session->logits().begin(), session->logits().end());
  };
  keep();
  for (const Token token : tokens.subspan(kPrompt)) {
    EBB_RETURN_IF_ERROR(session->Decode(token).status);
    keep();
  }
  passage.hash = session->logits_hash();
  return passage;
}

Result<Passage> ReadNew(Engine* engine, const PolicySpec& policy, std::span<const Token> tokens) {
  SessionOptions options;
  options.policy = policy;
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->OpenSession(options));
  return Read(session.get(), tokens);
}

// Reads the tokens with half of the older rows in T2, then prefills another prompt after them.
Result<Passage> ReadCompressed(Engine* engine, std::span<const Token> tokens) {
  SessionOptions options;
  options.policy = Compressing();
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->OpenSession(options));
  EBB_ASSIGN_OR_RETURN(Passage passage, Read(session.get(), tokens));
  EBB_RETURN_IF_ERROR(session->Prefill(tokens.first(kPrompt)).status);
  passage.logits.emplace_back(session->logits().begin(), session->logits().end());
  return passage;
}

struct Difference {
  double largest = 0;  // of two logits, over the deviation of the logits
  double mean_kl = 0;  // nats a token
  double top1 = 0;     // share of tokens with the same first choice
};

double LogSum(const std::vector<float>& logits, double largest) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

Difference Compare(const Passage& expected, const Passage& actual) {
  Difference difference;
  const size_t steps = expected.logits.size();
  for (size_t i = 0; i < steps; ++i) {
    const std::vector<float>&a = expected.logits[i], &b = actual.logits[i];
    double sum = 0, squares = 0, largest = 0;
    for (size_t j = 0; j < a.size(); ++j) {
      sum += a[j];
      squares += double{a[j]} * a[j];
      largest = std::max(largest, std::abs(double{a[j]} - b[j]));
    }
    const auto size = static_cast<double>(a.size());
    const double deviation = std::sqrt(std::max(1e-30, squares / size - sum * sum / size / size));
    difference.largest = std::max(difference.largest, largest / deviation);
    const auto top_a = std::ranges::max_element(a), top_b = std::ranges::max_element(b);
    difference.top1 += top_a - a.begin() == top_b - b.begin() ? 1 : 0;
    const double of_a = LogSum(a, *top_a), of_b = LogSum(b, *top_b);
    double kl = 0;
    for (size_t j = 0; j < a.size(); ++j) {
      kl += std::exp(a[j] - of_a) * ((a[j] - of_a) - (b[j] - of_b));
    }
    difference.mean_kl += kl;
  }
  difference.mean_kl /= static_cast<double>(steps);
  difference.top1 /= static_cast<double>(steps);
  return difference;
}

Json ToJson(const Difference& difference) {
  return {{"largest_of_deviation", difference.largest},
          {"mean_kl", difference.mean_kl},
          {"top1", difference.top1}};
}

// Returns two rates in tokens per second: of a prefill, and of the decode steps after it.
Result<std::pair<double, double>> Speed(Engine* engine, std::span<const Token> tokens) {
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->OpenSession({}));
  EBB_RETURN_IF_ERROR(session->Prefill(tokens.first(kSpeedPrompt)).status);  // builds and warms
  EBB_RETURN_IF_ERROR(session->Decode(tokens[0]).status);
  EBB_RETURN_IF_ERROR(session->TruncateTo(0));
  const auto begin = Clock::now();
  EBB_RETURN_IF_ERROR(session->Prefill(tokens.first(kSpeedPrompt)).status);
  const auto between = Clock::now();
  for (const Token token : tokens.first(kSpeedSteps))
    EBB_RETURN_IF_ERROR(session->Decode(token).status);
  const auto end = Clock::now();
  return std::pair(kSpeedPrompt / std::chrono::duration<double>(between - begin).count(),
                   kSpeedSteps / std::chrono::duration<double>(end - between).count());
}

uint64_t FreeBytes(std::string_view name) {
  for (const DeviceDescription& device : ListDevices()) {
    if (device.name == name) return device.free_bytes;
  }
  return 0;
}

std::string DescriptionOf(std::string_view name) {
  for (const DeviceDescription& device : ListDevices()) {
    if (device.name == name) return device.description;
  }
  return std::string(name);
}

struct Check {
  std::string name;
  bool passed = false;
};

// Returns the processor's logits for the same tokens with weights widened to F32. They show how
// much of a difference comes from rounding the activations that are multiplied with quantized
// weights. Returns nothing if the widened model would be large.
Result<std::optional<Passage>> ReadWidened(CliOptions options, const Model& model,
                                           std::span<const Token> text) {
  constexpr uint64_t kMost = uint64_t{1} << 30;
  if (options.model.weights == WeightMode::kDequantize || model.weight_bytes() > kMost) {
    return std::optional<Passage>();
  }
  options.model.weights = WeightMode::kDequantize;
  options.engine.device = {};
  EBB_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> widened, OpenModel(options));
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> host, Engine::Create(widened, options.engine));
  EBB_ASSIGN_OR_RETURN(Passage passage, ReadNew(host.get(), PolicySpec(), text));
  return std::optional<Passage>(std::move(passage));
}

Status CheckDevice(const CliOptions& options) {
  if (options.engine.device.kind != DeviceKind::kBackend) {
    return InvalidArgument("device test: name a device with --device; `ebb device list` has them");
  }
  EBB_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, OpenModel(options));
  EngineOptions on_device = options.engine;
  on_device.tiers = TiersWithT2().engine;
  EngineOptions on_host = on_device;
  on_host.device = {};
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> host, Engine::Create(model, on_host));
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> device, Engine::Create(model, on_device));
  const std::string name(device->device_report().name);
  const std::vector<Token> text = SomeTokens(*model, kPrompt + kSteps);
  const PolicySpec full, evicting = Evicting();

  EBB_ASSIGN_OR_RETURN(const Passage expected, ReadNew(host.get(), full, text));
  EBB_ASSIGN_OR_RETURN(const std::optional<Passage> widened, ReadWidened(options, *model, text));
  EBB_ASSIGN_OR_RETURN(const Passage first, ReadNew(device.get(), full, text));
  EBB_ASSIGN_OR_RETURN(const Passage again, ReadNew(device.get(), full, text));
  EBB_ASSIGN_OR_RETURN(const Passage expected_evicted, ReadNew(host.get(), evicting, text));
  EBB_ASSIGN_OR_RETURN(const Passage evicted, ReadNew(device.get(), evicting, text));
  EBB_ASSIGN_OR_RETURN(const Passage expected_compressed, ReadCompressed(host.get(), text));
  EBB_ASSIGN_OR_RETURN(const Passage compressed, ReadCompressed(device.get(), text));
  // With another session open on the device, the same rows lie in other slots.
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Session> other, device->OpenSession({}));
  EBB_RETURN_IF_ERROR(other->Prefill(std::span(text).first(kPrompt)).status);
  EBB_ASSIGN_OR_RETURN(const Passage beside, ReadNew(device.get(), full, text));
  EBB_ASSIGN_OR_RETURN(const Passage evicted_beside, ReadNew(device.get(), evicting, text));
  EBB_ASSIGN_OR_RETURN(const Passage compressed_beside, ReadCompressed(device.get(), text));
  // Truncating to the prompt and decoding again must give the same logits.
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Session> back, device->OpenSession({}));
  EBB_RETURN_IF_ERROR(Read(back.get(), text).status());
  EBB_RETURN_IF_ERROR(back->TruncateTo(kPrompt));
  bool goes_back = true;
  for (int i = 0; i < kSteps; ++i) {
    EBB_RETURN_IF_ERROR(back->Decode(text[kPrompt + i]).status);
    goes_back = goes_back && std::ranges::equal(back->logits(), first.logits[i + 1]);
  }

  const Difference of_full = Compare(expected, first);
  const Difference of_evicted = Compare(expected_evicted, evicted);
  const Difference of_compressed = Compare(expected_compressed, compressed);
  const std::vector<Check> checks = {
      {"repeats its bits", again.hash == first.hash},
      {"slots change no bit", beside.hash == first.hash},
      {"slots change no bit with rows evicted per head", evicted_beside.hash == evicted.hash},
      {"slots change no bit with rows in T2", compressed_beside.hash == compressed.hash},
      {"goes back to a prompt", goes_back},
      {"its logits are near the processor's",
       std::max({of_full.mean_kl, of_evicted.mean_kl, of_compressed.mean_kl}) <= kMostKl}};
  const std::vector<Token> long_text = SomeTokens(*model, kSpeedPrompt);
  EBB_ASSIGN_OR_RETURN(const auto speed, Speed(device.get(), long_text));
  EBB_ASSIGN_OR_RETURN(const auto host_speed, Speed(host.get(), long_text));

  Json of_checks = Json::object();
  for (const Check& check : checks) of_checks[check.name] = check.passed;
  const bool all = std::ranges::all_of(checks, &Check::passed);
  Json record = {{"device", name},
                 {"description", DescriptionOf(name)},
                 {"version", EBB_VERSION},
                 {"model", model->description()},
                 {"machine", MachineName()},
                 {"against_cpu", ToJson(of_full)},
                 {"against_cpu_evicting", ToJson(of_evicted)},
                 {"against_cpu_compressed", ToJson(of_compressed)},
                 {"checks", of_checks},
                 {"prefill_tokens_per_s", speed.first},
                 {"decode_tokens_per_s", speed.second},
                 {"cpu_prefill_tokens_per_s", host_speed.first},
                 {"cpu_decode_tokens_per_s", host_speed.second},
                 {"free_bytes", FreeBytes(name)}};
  if (widened) {
    record["cpu_against_f32"] = ToJson(Compare(*widened, expected));
    record["against_f32"] = ToJson(Compare(*widened, first));
  }
  const int columns = HelpColumns();
  std::string report =
      fmt::format("{}: {}\n{}\n{}\n", name, DescriptionOf(name), model->description(),
                  all ? fmt::format("{} works: it passes all {} checks.", name, checks.size())
                      : fmt::format("{} does NOT work: it fails a check below.", name));
  const auto add = [&](std::string_view what, const Difference& difference) {
    report +=
        Wrapped(fmt::format("{}: logits differ by at most {:.2e} of their deviation, mean KL "
                            "{:.1e}, the same first choice {:.1f} %",
                            what, difference.largest, difference.mean_kl, 100 * difference.top1),
                2, columns) +
        "\n";
  };
  add("against the processor, every row", of_full);
  add("against the processor, rows evicted per head", of_evicted);
  add("against the processor, rows in T2", of_compressed);
  if (widened) {
    add("against the processor with weights as F32", Compare(*widened, first));
    add("the processor itself against that", Compare(*widened, expected));
  }
  for (const Check& check : checks) {
    report += fmt::format("{}: {}\n", check.name, check.passed ? "yes" : "NO");
  }
  report += fmt::format(
      "a prompt of {} tokens: {:.0f} tokens/s (processor {:.0f})\n"
      "decoding behind it: {:.1f} tokens/s (processor {:.1f})\n{}",
      kSpeedPrompt, speed.first, host_speed.first, speed.second, host_speed.second,
      Wrapped(fmt::format("to tell us of this device, send the one line of `ebb device test "
                          "--device {} --json`",
                          name),
              0, columns));
  EBB_RETURN_IF_ERROR(WriteRecord(options, record, report));
  return all ? OkStatus() : Internal("device " + name + " failed a check: see above");
}

}  // namespace

ExitCode RunDeviceTest(const CliOptions& options) {
  const Status status = CheckDevice(options);
  return status.ok() ? ExitCode::kOk : Fail(status);
}

}  // namespace ebb::cli
