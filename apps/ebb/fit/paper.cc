#include "apps/ebb/fit/paper.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "apps/ebb/bench/report.h"
#include "ebb/fit.h"

namespace ebb::cli {
namespace {

constexpr std::array kBatches = {1, 16, 64, 256};
constexpr std::array kLengths = {2048, 8192, 32768, 131072};
constexpr std::array kCompressions = {1, 4, 8};
constexpr double kGiB = uint64_t{1} << 30;
// Table 11 counts 60 % of the cache as saved.
constexpr double kPaperOffload = 0.6;

std::string ProjectionText() {
  std::string text =
      "\"Not All Thoughts Need HBM\", Tables 11 and 18: cache in GB as printed, in GiB by query "
      "heads "
      "(its formula)\nand by kv heads (what is cached); with its share of cache and weights, and "
      "60 % of it.\n\n";
  text += fmt::format(
      "{:<10} {:>5} {:>6} {:>8} | {:>7} {:>6} {:>7} | {:>7} {:>6} {:>7} | {:>7} {:>6} {:>7}\n",
      "model", "batch", "tokens", "weights", "printed", "share", "saved", "q heads", "share",
      "saved", "kv heads", "share", "saved");
  for (const PaperProjection& p : PaperProjections()) {
    text += fmt::format("{:<10} {:>5} {:>6} {:>8}", fmt::format("{} {}", p.model, p.weights_type),
                        p.batch, p.tokens, p.weights_gb);
    for (const double cache : {p.paper_cache_gb, p.cache_bytes_by_query_heads / kGiB,
                               p.cache_bytes_by_kv_heads / kGiB}) {
      text += fmt::format(" | {:>7.2f} {:>5.1f}% {:>7.2f}", cache,
                          100 * PaperProjection::Share(cache, p.weights_gb), kPaperOffload * cache);
    }
    text += "\n";
  }
  return text;
}

std::string ShareText() {
  std::string text =
      "\n\"Inference-Time Hyper-Scaling\", Appendix G: share of a decode step that reading the "
      "cache "
      "costs, on an H100, in %,\nwith the cache as it is / at a quarter / at an eighth.\n";
  for (const PaperShape& shape : PaperShapes()) {
    text += fmt::format("\n{:<14}", shape.name);
    for (const int tokens : kLengths)
      text += fmt::format(" {:>19}", fmt::format("{} tokens", tokens));
    for (const int batch : kBatches) {
      text += fmt::format("\n{:<14}", fmt::format("batch {}", batch));
      for (const int tokens : kLengths) {
        std::string cell;
        for (const int compression : kCompressions) {
          cell += fmt::format("{}{:.1f}", cell.empty() ? "" : " / ",
                              100 * CacheShareOfStep(shape, batch, tokens, compression));
        }
        text += fmt::format(" {:>19}", cell);
      }
    }
    text += "\n";
  }
  return text;
}

Json Record() {
  Json projections = Json::array(), shares = Json::array();
  for (const PaperProjection& p : PaperProjections()) {
    projections.push_back({{"model", p.model},
                           {"weights_type", p.weights_type},
                           {"batch", p.batch},
                           {"tokens", p.tokens},
                           {"weights_gb", p.weights_gb},
                           {"paper_cache_gb", p.paper_cache_gb},
                           {"cache_bytes_by_query_heads", p.cache_bytes_by_query_heads},
                           {"cache_bytes_by_kv_heads", p.cache_bytes_by_kv_heads}});
  }
  for (const PaperShape& shape : PaperShapes()) {
    for (const int batch : kBatches) {
      for (const int tokens : kLengths) {
        for (const int compression : kCompressions) {
          shares.push_back({{"model", shape.name},
                            {"batch", batch},
                            {"tokens", tokens},
                            {"compression", compression},
                            {"cache_share", CacheShareOfStep(shape, batch, tokens, compression)}});
        }
      }
    }
  }
  return {{"projections", projections}, {"cache_share_of_step", shares}};
}

}  // namespace

Status PrintPaper(const CliOptions& options) {
  return WriteRecord(options, Record(), ProjectionText() + ShareText());
}

}  // namespace ebb::cli
