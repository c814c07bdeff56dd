// Usage: ebb_schema_samples [MODEL] < CASES > RESULTS
//
// Each line of CASES is {"schema": ..., "use": "answer" or "tool", "samples": 4, "accept": [...]}.
// Each line of RESULTS says what became of it: {"refused": "..."}, or {"widened": [...], "samples":
// [texts drawn at random from the grammar], "accepted": [for each text of "accept", whether the
// grammar admits it]}. MODEL gives the vocabulary; without one it is that of single bytes.
#include <cstdio>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ebb/model.h"
#include "ebb/sampler.h"
#include "src/model/schema/json_grammar.h"
#include "src/model/schema/schema_rewrite.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

class Walker {
 public:
  explicit Walker(std::shared_ptr<const Model> model) : model_(std::move(model)) {
    const int size = model_->shape().vocab_size;
    for (Token token = 0; token < size; ++token) {
      const std::string text = model_->TokenText(token, Model::ControlTokens::kHide);
      const bool ends = model_->EndsGeneration(token);
      const bool closes = text == "\"" || text == "}" || text == "]" || text == "\"}";
      const bool is_blank = text.empty() || text.find_first_not_of(" \t\r\n") == std::string::npos;
      // Bytes that begin characters beyond ASCII come where nothing else does.
      const bool is_rare = !text.empty() && static_cast<unsigned char>(text[0]) >= 0x80;
      kinds_.push_back(ends       ? Kind::kEnd
                       : closes   ? Kind::kCloses
                       : is_blank ? Kind::kBlank
                       : is_rare  ? Kind::kRare
                                  : Kind::kOther);
    }
  }

  // A text of the grammar; it ends in "..." where it was too long, and is what went wrong where
  // something did.
  std::string Sample(const std::string& grammar, uint64_t seed) {
    auto sampler = Sampler::Create(
        *model_,
        {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed, .grammar = grammar});
    if (!sampler.ok()) return "!" + sampler.status().ToString();
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> logits(kinds_.size());
    std::string text;
    constexpr int kMostTokens = 4000;
    const int hurry = static_cast<int>(random() % 120);
    for (int i = 0; i < kMostTokens; ++i) {
      const float push = i < hurry ? 0.0F : 8.0F;
      for (size_t t = 0; t < logits.size(); ++t) {
        const float bias = kinds_[t] == Kind::kEnd      ? push + 2
                           : kinds_[t] == Kind::kCloses ? push
                           : kinds_[t] == Kind::kBlank  ? -2
                           : kinds_[t] == Kind::kRare   ? -30
                                                        : 0;
        logits[t] = normal(random) + bias;
      }
      const auto token = (*sampler)->Sample(logits, i);
      if (!token.ok()) return "!" + token.status().ToString() + " behind " + text;
      if (model_->EndsGeneration(*token)) return text;
      text += model_->TokenText(*token, Model::ControlTokens::kShow);
    }
    return text + "...";
  }

  bool Accepts(const std::string& grammar, const std::string& text) {
    auto sampler = Sampler::Create(*model_, {.temperature = 0, .grammar = grammar});
    const auto tokens = model_->Tokenize(text, Model::AddBos::kNo, Model::Specials::kAsText);
    if (!sampler.ok() || !tokens.ok()) return false;
    std::vector<float> logits(kinds_.size(), 0.0F);
    for (size_t i = 0; i <= tokens->size(); ++i) {
      for (size_t t = 0; t < logits.size(); ++t) {
        const bool is_wanted =
            i < tokens->size() ? static_cast<Token>(t) == (*tokens)[i] : kinds_[t] == Kind::kEnd;
        logits[t] = is_wanted ? 1.0F : 0.0F;
      }
      const auto token = (*sampler)->Sample(logits, static_cast<Position>(i));
      if (!token.ok() || logits[*token] != 1.0F) return false;
    }
    return true;
  }

 private:
  enum class Kind { kOther, kBlank, kRare, kCloses, kEnd };
  const std::shared_ptr<const Model> model_;
  std::vector<Kind> kinds_;
};

Json Tried(const Json& given, Walker* walker, uint64_t seed) {
  const SchemaUse use =
      given.value("use", "answer") == "tool" ? SchemaUse::kTool : SchemaUse::kAnswer;
  const auto rewritten = RewriteSchema(given.at("schema").dump(), use, "s");
  if (!rewritten.ok()) return {{"refused", rewritten.status().message()}};
  // The grammar of a tool's call gives names to rules as this does.
  Json whole = Json::parse(rewritten->schema);
  Json definitions = whole.value("$defs", Json::object());
  whole.erase("$defs");
  definitions["whole"] = std::move(whole);
  const Json outer = {{"$ref", "#/$defs/whole"}, {"$defs", std::move(definitions)}};
  const auto grammar =
      JsonGrammar({.schema = outer.dump(), .numbers = rewritten->numbers, .widened = {}});
  if (!grammar.ok()) {
    return {{"refused", "!" + grammar.status().message()}, {"rewritten", rewritten->schema}};
  }
  Json result = {{"widened", rewritten->widened},
                 {"rewritten", rewritten->schema},
                 {"samples", Json::array()},
                 {"accepted", Json::array()}};
  for (int i = 0; i < given.value("samples", 3); ++i) {
    result["samples"].push_back(walker->Sample(*grammar, seed * 1000 + static_cast<uint64_t>(i)));
  }
  for (const Json& text : given.value("accept", Json::array())) {
    result["accepted"].push_back(walker->Accepts(*grammar, text.get<std::string>()));
  }
  return result;
}

int Run(const char* path) {
  const TempFolder folder;
  std::string file = path == nullptr ? folder.File("model.gguf") : path;
  if (path == nullptr) {
    const Status status = WriteRandomGguf({.num_layers = 1, .num_tokens = 260}, file);
    if (!status.ok()) return fprintf(stderr, "%s\n", status.ToString().c_str()), 1;
  }
  auto model = Model::Load({.path = file});
  if (!model.ok()) return fprintf(stderr, "%s\n", model.status().ToString().c_str()), 1;
  Walker walker(*model);
  uint64_t seed = 0;
  for (std::string line; std::getline(std::cin, line); ++seed) {
    std::cout << Tried(Json::parse(line), &walker, seed)
                     .dump(-1, ' ', false, Json::error_handler_t::replace)
              << "\n"
              << std::flush;
  }
  return 0;
}

}  // namespace
}  // namespace ebb

int main(int argc, char** argv) { return ebb::Run(argc > 1 ? argv[1] : nullptr); }
