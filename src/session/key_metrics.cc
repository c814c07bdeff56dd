#include "src/session/key_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <new>
#include <span>
#include <string>

#include "src/attention/rows.h"
#include "src/attention/trellis.h"
#include "src/base/attention_layout.h"
#include "src/io/file_replacement.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {
namespace {

constexpr int kTokens = 512;  // of the text, at most
constexpr int kTokensAtOnce = 64;

// Mixes prose, a word problem, reasoning, code and records, since queries differ between them.
constexpr std::string_view kText =
    R"(The harbour was quiet before sunrise. Two fishing boats lay at the pier, and an old man in a
blue coat counted the crates that had come in during the night. "Eleven of herring, four of cod,"
he said, and wrote the numbers into a small book. Nobody answered, because nobody else was awake.

Question: A bakery sells rolls for 40 cents each and loaves for 3 dollars. On Monday it sold 85
rolls and 22 loaves. How much money did it take in, and how much more would it have taken in if
every loaf had cost 25 cents more?
Answer: The rolls brought 85 * 0.40 = 34 dollars. The loaves brought 22 * 3 = 66 dollars. Together
that is 34 + 66 = 100 dollars. With loaves at 3.25 dollars, 22 * 0.25 = 5.50 dollars would be added.
Wait, let me check the first product again: 85 * 4 = 340, so 85 * 0.4 = 34. That is right. So the
answers are 100 dollars and 5.50 dollars.

```python
def longest_run(values):
    """Returns the length of the longest run of equal neighbours."""
    best = current = 0
    previous = None
    for value in values:
        current = current + 1 if value == previous else 1
        best = max(best, current)
        previous = value
    return best
```

<user>Can you explain in two sentences why the sky is blue?</user>
<assistant>Air scatters short waves of light far more strongly than long ones, so blue light reaches
us from every part of the sky. Near the horizon in the evening the path is so long that most of the
blue is gone, which leaves the red.</assistant>

{"name": "Ida Berg", "city": "Tromso", "orders": [{"id": 1047, "total": 59.90, "paid": true},
{"id": 1102, "total": 12.25, "paid": false}], "since": "2019-03-14"}

Theorem. Every integer n > 1 has a prime divisor. Proof. Let d be the least divisor of n that is
greater than 1. If d were not prime, it would have a divisor e with 1 < e < d, and e would divide n
as well, which contradicts the choice of d.
)";

Result<std::vector<Token>> TokensOf(const Model& model) {
  auto tokens = model.Tokenize(kText, Model::AddBos::kAsModelSays, Model::Specials::kAsText);
  if (tokens.ok() && !tokens->empty()) {
    tokens->resize(std::min<size_t>(tokens->size(), kTokens));
    return tokens;
  }
  // The model has no tokenizer.
  std::vector<Token> some(kTokens);
  const auto vocab_size = static_cast<uint64_t>(model.shape().vocab_size);
  for (uint64_t i = 0; i < some.size(); ++i) {
    some[i] = static_cast<Token>((i + 1) * 2654435761 % vocab_size);
  }
  return some;
}

// Adds the lower triangle of q * transposed(q).
void AddSquare(std::span<const float> q, double* moment) {
  const size_t dim = q.size();
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j <= i; ++j) moment[i * dim + j] += double{q[i]} * q[j];
  }
}

// Returns the file that keeps the metrics of this model. Its name changes with all that they depend
// on.
std::string PathOf(const Model& model, const EngineOptions& options, std::string_view kernel) {
  // Changes with the text and with what is computed from it.
  constexpr int kVersion = 1;
  const Hyperparameters& h = model.loaded().hparams;
  const std::string rope = fmt::format("{}-{}-{}", h.rope_frequency_scale, h.rope_original_context,
                                       h.has_short_rope_factors ? "short" : "long");
  return fmt::format("{}/key-metrics-{}-{:016x}-{:016x}-{}-{}-{}-{}", options.metrics_folder,
                     kVersion, model.fingerprint(), HashOfKernels(model.loaded()), kernel,
                     RowTypeName(options.kv_type), model.shape().NumStreams(), rope);
}

bool AreFinite(std::span<const float> metrics) {
  return std::ranges::all_of(metrics, [](float x) { return std::isfinite(x); });
}

// Reads the metrics that the file holds. Returns false if it does not hold so many finite ones.
bool ReadMetrics(const std::string& path, std::span<float> metrics) {
  const auto size = static_cast<std::streamsize>(metrics.size_bytes());
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(metrics.data()), size)) return false;
  return file.peek() == std::ifstream::traits_type::eof() && AreFinite(metrics);
}

void KeepMetrics(const std::string& path, std::span<const float> metrics) {
  std::error_code ignored;
  std::filesystem::create_directory(std::filesystem::path(path).parent_path(), ignored);
  auto file = FileReplacement::Create(path);
  if (!file.ok()) return;
  Status kept = (*file)->Write(std::as_bytes(metrics));
  if (kept.ok()) kept = (*file)->Commit();
  static_cast<void>(kept);  // metrics that cannot be kept are computed again
}

Status ComputeMetrics(const std::shared_ptr<const Model>& model, const EngineOptions& options,
                      std::span<float> metrics) {
  EBB_ASSIGN_OR_RETURN(std::vector<Token> tokens, TokensOf(*model));
  tokens.resize(std::min<size_t>(tokens.size(), model->shape().trained_context));
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                       Engine::Create(model, {.threads = options.threads,
                                              .kv_type = options.kv_type,
                                              .prefill_chunk = kTokensAtOnce,
                                              .attention = options.attention}));
  const SessionOptions watched = {
      .context = static_cast<int>(tokens.size()),
      .extra_signals = {.num_recent_queries = std::min<int>(kTokensAtOnce, tokens.size())}};
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine->OpenSession(watched));
  const AttentionLayout layout(model->shape(), Granularity::kHead);
  const size_t dim = layout.head_dim(), square = dim * dim;
  std::vector<double> moments(layout.num_streams() * square);
  for (std::span<const Token> left = tokens; !left.empty();) {
    const auto now = left.first(std::min<size_t>(left.size(), kTokensAtOnce));
    left = left.subspan(now.size());
    EBB_RETURN_IF_ERROR(session->Prefill(now).status);
    const StepSignals& signals = session->last_signals();
    for (int layer = 0; layer < layout.num_layers(); ++layer) {
      if (layout.NumKvHeads(layer) == 0) continue;
      const size_t heads = layout.QueryHeadsPerKvHead(layer);
      const std::span<const float> queries =
          signals.recent_queries[layer].last(now.size() * layout.num_q_heads() * dim);
      for (size_t query = 0; query < queries.size() / dim; ++query) {
        const auto kv_head = static_cast<int>(query % layout.num_q_heads() / heads);
        AddSquare(queries.subspan(query * dim, dim),
                  moments.data() + layout.StreamOf(layer, kv_head) * square);
      }
    }
  }
  const size_t floats = KeyMetricFloats(layout.head_dim());
  for (int stream = 0; stream < layout.num_streams(); ++stream) {
    double* const moment = moments.data() + stream * square;
    for (size_t i = 0; i < dim; ++i) {
      for (size_t j = 0; j < i; ++j) moment[j * dim + i] = moment[i * dim + j];
    }
    MakeKeyMetric(moment, layout.head_dim(), metrics.data() + stream * floats);
  }
  if (AreFinite(metrics)) return OkStatus();
  return Corrupt("the queries of the model are not finite");
}

}  // namespace

Status ComputeKeyMetrics(const std::shared_ptr<const Model>& model, const EngineOptions& options,
                         std::string_view kernel, std::span<float> metrics) try {
  if (options.metrics_folder.empty()) return ComputeMetrics(model, options, metrics);
  const std::string path = PathOf(*model, options, kernel);
  if (ReadMetrics(path, metrics)) return OkStatus();
  EBB_RETURN_IF_ERROR(ComputeMetrics(model, options, metrics));
  KeepMetrics(path, metrics);
  return OkStatus();
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory to compute what errors of keys cost");
}

}  // namespace ebb
