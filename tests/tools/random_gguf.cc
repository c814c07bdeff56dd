// Writes a model with random weights, for fuzzing corpora and for trying a shape by hand:
//   ebb_random_gguf OUT.gguf family=qwen3 num_layers=4 weight_type=q4_0 ...
#include "tests/support/random_gguf.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <type_traits>

namespace {

using Options = ebb::RandomGgufOptions;

// Maps each name of RandomGgufOptions to the member that it sets.
std::map<std::string, std::function<bool(const std::string&)>> Setters(Options* o) {
  std::map<std::string, std::function<bool(const std::string&)>> setters;
  const auto text = [&](const char* name, std::string* target) {
    setters[name] = [target](const std::string& value) {
      *target = value;
      return true;
    };
  };
  const auto number = [&](const char* name, auto* target) {
    setters[name] = [target](const std::string& value) {
      char* end = nullptr;
      *target =
          static_cast<std::remove_pointer_t<decltype(target)>>(std::strtod(value.c_str(), &end));
      return !value.empty() && *end == '\0';
    };
  };
  const auto choice = [&](const char* name, auto* target, auto choices) {
    setters[name] = [target, choices](const std::string& value) {
      const auto it = choices.find(value);
      if (it != choices.end()) *target = it->second;
      return it != choices.end();
    };
  };
  text("family", &o->family);
  text("weight_type", &o->weight_type);
  text("value_type", &o->value_type);
  number("num_layers", &o->num_layers);
  number("embed_dim", &o->embed_dim);
  number("num_q_heads", &o->num_q_heads);
  number("num_kv_heads", &o->num_kv_heads);
  number("sliding_window", &o->sliding_window);
  number("window_pattern", &o->window_pattern);
  number("head_dim", &o->head_dim);
  number("feed_forward_dim", &o->feed_forward_dim);
  number("num_tokens", &o->num_tokens);
  number("context", &o->context);
  number("eviction_window", &o->eviction_window);
  number("eviction_shift", &o->eviction_shift);
  number("rope_base", &o->rope_base);
  number("rope_factor", &o->rope_factor);
  number("seed", &o->seed);
  number("repeats_layers", &o->repeats_layers);
  choice("biases", &o->biases,
         std::map<std::string, Options::Biases>{{"none", Options::Biases::kNone},
                                                {"qkv", Options::Biases::kQkv},
                                                {"qkv_output", Options::Biases::kQkvAndOutput}});
  choice("embeddings", &o->embeddings,
         std::map<std::string, Options::Embeddings>{{"tied", Options::Embeddings::kTied},
                                                    {"untied", Options::Embeddings::kUntied}});
  choice("rope", &o->rope,
         std::map<std::string, Options::Rope>{{"none", Options::Rope::kNone},
                                              {"linear", Options::Rope::kLinear},
                                              {"yarn", Options::Rope::kYarn},
                                              {"llama3", Options::Rope::kLlama3}});
  choice("marks", &o->marks,
         std::map<std::string, Options::Marks>{{"query_channel", Options::Marks::kQueryChannel},
                                               {"adapter", Options::Marks::kAdapter}});
  choice("tokenizer", &o->tokenizer,
         std::map<std::string, Options::Tokenizer>{{"byte_pair", Options::Tokenizer::kBytePair},
                                                   {"unigram", Options::Tokenizer::kUnigram},
                                                   {"minimal", Options::Tokenizer::kMinimal}});
  return setters;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const auto setters = Setters(&options);
  if (argc < 2 || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: %s OUT.gguf NAME=VALUE...\nnames:", argv[0]);
    for (const auto& [name, setter] : setters) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = std::min(argument.find('='), argument.size());
    const auto it = setters.find(argument.substr(0, equals));
    if (it == setters.end() || equals == argument.size() ||
        !it->second(argument.substr(equals + 1))) {
      std::fprintf(stderr, "cannot understand %s\n", argv[i]);
      return 2;
    }
  }
  const ebb::Status status = ebb::WriteRandomGguf(options, argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
