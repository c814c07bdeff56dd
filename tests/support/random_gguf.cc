#include "tests/support/random_gguf.h"

#include <fmt/format.h>
#include <ggml.h>
#include <gguf.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

namespace ebb {
namespace {

enum TokenType : int32_t { kNormal = 1, kControl = 3, kByte = 6 };

struct TokenList {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges;

  void Add(std::string text, TokenType type) {
    scores.push_back(-static_cast<float>(texts.size()));
    texts.push_back(std::move(text));
    types.push_back(type);
  }
};

std::string Utf8(uint32_t code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3f))};
}

// The character that byte-level vocabularies write for a byte: itself where it prints, else the
// next one from U+0100 on.
std::vector<std::string> ByteCharacters() {
  std::vector<std::string> characters;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
                        (byte >= 0xae && byte <= 0xff);
    characters.push_back(Utf8(prints ? byte : next++));
  }
  return characters;
}

void AddBytePairTokens(int num_tokens, TokenList* tokens) {
  for (const std::string& character : ByteCharacters()) tokens->Add(character, kNormal);
  for (int i = 0; static_cast<int>(tokens->texts.size()) < num_tokens; ++i) {
    // All pairs, then pairs followed by a letter; each merge uses what earlier ones made.
    const std::string letter(1, static_cast<char>('a' + i % 26));
    const int first = i / 26;
    const std::string stem = first < 26 ? std::string(1, static_cast<char>('a' + first))
                                        : tokens->texts[3 + 256 + first - 26];
    tokens->Add(stem + letter, kNormal);
    tokens->merges.push_back(stem + " " + letter);
  }
  if (tokens->merges.empty()) tokens->merges.push_back("a a");
}

void AddUnigramTokens(int num_tokens, TokenList* tokens) {
  for (int byte = 0; byte < 256; ++byte) tokens->Add(fmt::format("<0x{:02X}>", byte), kByte);
  // Letters, then pairs, each also with the mark of a word's beginning (U+2581).
  for (int i = 0; static_cast<int>(tokens->texts.size()) < num_tokens; ++i) {
    std::string word(1, static_cast<char>('a' + i / 2 % 26));
    if (i >= 52) word += fmt::format("{}", i / 52);
    tokens->Add((i % 2 == 0 ? "" : "\xe2\x96\x81") + word, kNormal);
  }
}

void AddMinimalTokens(int num_tokens, TokenList* tokens) {
  for (int i = 0; static_cast<int>(tokens->texts.size()) < num_tokens; ++i) {
    tokens->Add(i < 26 ? std::string(1, static_cast<char>('a' + i)) : Utf8(0x100 + i), kNormal);
  }
  tokens->merges.push_back("a b");
}

// One turn after the other, as ChatML has it.
constexpr const char* kChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

Result<ggml_type> FindType(std::string_view name) {
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const auto type = static_cast<ggml_type>(i);
    const char* type_name = ggml_type_name(type);
    if (type_name != nullptr && name == type_name) return type;
  }
  return InvalidArgument(fmt::format("unknown weight type {}", name));
}

Status CheckOptions(const RandomGgufOptions& o) {
  for (const std::string& name : {o.weight_type, o.value_type}) {
    if (name.empty()) continue;
    EBB_ASSIGN_OR_RETURN(const ggml_type type, FindType(name));
    for (const int columns : {o.embed_dim, o.feed_forward_dim, o.num_q_heads * o.head_dim}) {
      if (columns % ggml_blck_size(type) != 0) {
        return InvalidArgument(fmt::format("rows of {} are no whole blocks of {}", columns, name));
      }
    }
  }
  const int least = o.tokenizer == RandomGgufOptions::Tokenizer::kMinimal ? 8 : 260;
  if (o.num_tokens < least) {
    return InvalidArgument(
        fmt::format("{} tokens; the tokenizer has {} or more", o.num_tokens, least));
  }
  return OkStatus();
}

class RandomGguf {
 public:
  explicit RandomGguf(const RandomGgufOptions& options)
      : o_(options),
        random_(options.seed),
        random_marks_(options.seed + 1000),
        gguf_(gguf_init_empty()) {
    const size_t num_tensors = 8 + 20 * static_cast<size_t>(options.num_layers);
    ggml_.reset(ggml_init({.mem_size = num_tensors * ggml_tensor_overhead(),
                           .mem_buffer = nullptr,
                           .no_alloc = true}));
  }

  void AddMetadata();
  void AddAdapterMetadata();
  void AddTokenizer();
  void AddTensors();
  void AddMarks();
  void AddEagle3(const RandomEagle3Options& head, int target_embed_dim);
  void AddAssistant(const RandomAssistantOptions& assistant);
  void AddDflash(const RandomDflashOptions& head);
  [[nodiscard]] bool WriteTo(const std::string& path) const {
    return gguf_write_to_file(gguf_.get(), path.c_str(), /*only_meta=*/false);
  }

 private:
  struct Free {
    void operator()(gguf_context* context) const { gguf_free(context); }
    void operator()(ggml_context* context) const { ggml_free(context); }
  };

  [[nodiscard]] std::string Key(std::string_view name) const {
    return fmt::format("{}.{}", o_.family, name);
  }
  void SetSize(std::string_view key, int value) {
    gguf_set_val_u32(gguf_.get(), Key(key).c_str(), static_cast<uint32_t>(value));
  }
  void SetNumber(std::string_view key, float value) {
    gguf_set_val_f32(gguf_.get(), Key(key).c_str(), value);
  }
  [[nodiscard]] int KvHeads(int layer) const {
    return o_.kv_heads_by_layer.empty() ? o_.num_kv_heads : o_.kv_heads_by_layer[layer];
  }
  void AddKvHeadsMetadata();
  void AddWindowMetadata();
  void AddRopeMetadata();
  void AddMarksMetadata(std::string_view layout);
  void AddLayer(int layer);
  void AddRopeFactors();
  void AddVector(const std::string& name, int64_t size, float mean, float deviation);
  // Normal with a standard deviation of gain / sqrt(columns): gain 1 keeps the size of its input.
  void AddMatrix(const std::string& name, int64_t columns, int64_t rows, float gain,
                 const std::string& type);
  void AddTensor(const std::string& name, ggml_type type, int64_t columns, int64_t rows,
                 const std::vector<float>& values);
  // Whether a tensor was added that has the data of the first layer's.
  bool AddRepeated(const std::string& name);
  std::vector<float> Normal(int64_t size, float mean, float deviation);
  static std::vector<float> Normal(int64_t size, float mean, float deviation,
                                   std::mt19937_64* random);

  const RandomGgufOptions& o_;
  std::mt19937_64 random_;
  std::mt19937_64 random_marks_;  // what draws from it changes no other tensor
  std::unique_ptr<gguf_context, Free> gguf_;
  std::unique_ptr<ggml_context, Free> ggml_;
  std::vector<std::vector<std::byte>> data_;
  std::map<std::string, const ggml_tensor*> of_first_layer_;
};

void RandomGguf::AddMetadata() {
  gguf_set_val_str(gguf_.get(), "general.architecture", o_.family.c_str());
  gguf_set_val_str(gguf_.get(), "general.name", "Random");
  SetSize("context_length", o_.context);
  SetSize("embedding_length", o_.embed_dim);
  SetSize("block_count", o_.num_layers);
  SetSize("feed_forward_length", o_.feed_forward_dim);
  SetSize("attention.head_count", o_.num_q_heads);
  AddKvHeadsMetadata();
  if (o_.sliding_window > 0) AddWindowMetadata();
  SetSize("attention.key_length", o_.head_dim);
  SetSize("attention.value_length", o_.head_dim);
  SetSize("rope.dimension_count", o_.head_dim);
  SetNumber("attention.layer_norm_rms_epsilon", 1e-5f);
  AddRopeMetadata();
  if (o_.eviction_window == 0) return;
  AddMarksMetadata(o_.marks == RandomGgufOptions::Marks::kAdapter ? "adapter"
                                                                  : "query_last_channel");
}

void RandomGguf::AddKvHeadsMetadata() {
  if (o_.kv_heads_by_layer.empty()) return SetSize("attention.head_count_kv", o_.num_kv_heads);
  gguf_set_arr_data(gguf_.get(), Key("attention.head_count_kv").c_str(), GGUF_TYPE_INT32,
                    o_.kv_heads_by_layer.data(), o_.kv_heads_by_layer.size());
}

void RandomGguf::AddWindowMetadata() {
  SetSize("attention.sliding_window", o_.sliding_window);
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  if (o_.window_pattern > 0) SetSize(kPattern, o_.window_pattern);
  if (o_.window_layers.empty()) return;
  const std::vector<uint8_t> layers(o_.window_layers.begin(), o_.window_layers.end());
  gguf_set_arr_data(gguf_.get(), Key(kPattern).c_str(), GGUF_TYPE_BOOL, layers.data(),
                    layers.size());
}

void RandomGguf::AddAdapterMetadata() {
  gguf_set_val_str(gguf_.get(), "general.type", "adapter");
  gguf_set_val_str(gguf_.get(), "general.architecture", o_.family.c_str());
  gguf_set_val_str(gguf_.get(), "general.name", "Marks");
  AddMarksMetadata("adapter");
}

void RandomGguf::AddMarksMetadata(std::string_view layout) {
  gguf_set_val_str(gguf_.get(), Key("attention.dms.layout").c_str(), std::string(layout).c_str());
  SetSize("attention.dms.window", o_.eviction_window);
  if (o_.eviction_shift != 1) SetSize("attention.dms.shift", o_.eviction_shift);
  SetNumber("attention.dms.alpha_scale", 20);
  SetNumber("attention.dms.alpha_offset", 2.5f);
}

void RandomGguf::AddRopeMetadata() {
  using Rope = RandomGgufOptions::Rope;
  SetNumber("rope.freq_base", o_.rope_base);
  if (o_.rope != Rope::kLinear && o_.rope != Rope::kYarn) return;
  gguf_set_val_str(gguf_.get(), Key("rope.scaling.type").c_str(),
                   o_.rope == Rope::kLinear ? "linear" : "yarn");
  SetNumber("rope.scaling.factor", o_.rope_factor);
  SetSize("rope.scaling.original_context_length",
          static_cast<int>(static_cast<float>(o_.context) / o_.rope_factor));
}

void RandomGguf::AddTokenizer() {
  using Tokenizer = RandomGgufOptions::Tokenizer;
  TokenList tokens;
  tokens.Add("<unk>", kControl);
  tokens.Add("<|im_start|>", kControl);
  tokens.Add("<|im_end|>", kControl);
  switch (o_.tokenizer) {
    case Tokenizer::kBytePair:
      AddBytePairTokens(o_.num_tokens, &tokens);
      break;
    case Tokenizer::kUnigram:
      AddUnigramTokens(o_.num_tokens, &tokens);
      break;
    case Tokenizer::kMinimal:
      AddMinimalTokens(o_.num_tokens, &tokens);
      break;
  }
  const auto set_strings = [&](const char* key, const std::vector<std::string>& strings) {
    std::vector<const char*> pointers;
    for (const std::string& string : strings) pointers.push_back(string.c_str());
    gguf_set_arr_str(gguf_.get(), key, pointers.data(), pointers.size());
  };
  const bool unigram = o_.tokenizer == Tokenizer::kUnigram;
  gguf_set_val_str(gguf_.get(), "tokenizer.ggml.model", unigram ? "llama" : "gpt2");
  if (!unigram) {
    gguf_set_val_str(gguf_.get(), "tokenizer.ggml.pre", "smollm");
    set_strings("tokenizer.ggml.merges", tokens.merges);
  }
  set_strings("tokenizer.ggml.tokens", tokens.texts);
  gguf_set_arr_data(gguf_.get(), "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, tokens.scores.data(),
                    tokens.scores.size());
  gguf_set_arr_data(gguf_.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, tokens.types.data(),
                    tokens.types.size());
  gguf_set_val_u32(gguf_.get(), "tokenizer.ggml.unknown_token_id", 0);
  gguf_set_val_u32(gguf_.get(), "tokenizer.ggml.bos_token_id", 1);
  gguf_set_val_u32(gguf_.get(), "tokenizer.ggml.eos_token_id", 2);
  gguf_set_val_bool(gguf_.get(), "tokenizer.ggml.add_bos_token", unigram);
  gguf_set_val_str(gguf_.get(), "tokenizer.chat_template", kChatTemplate);
}

std::vector<float> RandomGguf::Normal(int64_t size, float mean, float deviation,
                                      std::mt19937_64* random) {
  std::normal_distribution<float> distribution(mean, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = distribution(*random);
  return values;
}

std::vector<float> RandomGguf::Normal(int64_t size, float mean, float deviation) {
  return Normal(size, mean, deviation, &random_);
}

void RandomGguf::AddTensor(const std::string& name, ggml_type type, int64_t columns, int64_t rows,
                           const std::vector<float>& values) {
  ggml_tensor* tensor = rows == 1 ? ggml_new_tensor_1d(ggml_.get(), type, columns)
                                  : ggml_new_tensor_2d(ggml_.get(), type, columns, rows);
  ggml_set_name(tensor, name.c_str());
  std::vector<std::byte>& bytes = data_.emplace_back(ggml_nbytes(tensor));
  ggml_quantize_chunk(type, values.data(), bytes.data(), 0, rows, columns, nullptr);
  tensor->data = bytes.data();
  gguf_add_tensor(gguf_.get(), tensor);
  constexpr std::string_view kFirst = "blk.0.";
  if (name.starts_with(kFirst)) of_first_layer_[name.substr(kFirst.size())] = tensor;
}

bool RandomGguf::AddRepeated(const std::string& name) {
  if (!o_.repeats_layers || !name.starts_with("blk.")) return false;
  const auto found = of_first_layer_.find(name.substr(name.find('.', 4) + 1));
  if (found == of_first_layer_.end()) return false;
  ggml_tensor* tensor = ggml_dup_tensor(ggml_.get(), found->second);
  ggml_set_name(tensor, name.c_str());
  tensor->data = found->second->data;
  gguf_add_tensor(gguf_.get(), tensor);
  return true;
}

void RandomGguf::AddVector(const std::string& name, int64_t size, float mean, float deviation) {
  if (AddRepeated(name)) return;
  AddTensor(name, GGML_TYPE_F32, size, 1, Normal(size, mean, deviation));
}

void RandomGguf::AddMatrix(const std::string& name, int64_t columns, int64_t rows, float gain,
                           const std::string& type) {
  if (AddRepeated(name)) return;
  const float deviation = gain / std::sqrt(static_cast<float>(columns));
  AddTensor(name, *FindType(type), columns, rows, Normal(columns * rows, 0, deviation));
}

void RandomGguf::AddRopeFactors() {
  // Llama 3's own: long waves are slowed eightfold, short ones not at all, smoothly in between.
  constexpr float kFactor = 8, kLowFrequency = 1, kHighFrequency = 4, kTwoPi = 6.2831853f;
  const float original_context = static_cast<float>(o_.context) / kFactor;
  std::vector<float> factors(o_.head_dim / 2);
  for (size_t i = 0; i < factors.size(); ++i) {
    const float exponent = 2 * static_cast<float>(i) / static_cast<float>(o_.head_dim);
    const float waves = original_context / (kTwoPi * std::pow(o_.rope_base, exponent));
    const float smooth =
        std::clamp((waves - kLowFrequency) / (kHighFrequency - kLowFrequency), 0.0f, 1.0f);
    factors[i] = 1 / ((1 - smooth) / kFactor + smooth);
  }
  AddTensor("rope_freqs.weight", GGML_TYPE_F32, o_.head_dim / 2, 1, factors);
}

void RandomGguf::AddLayer(int layer) {
  using Biases = RandomGgufOptions::Biases;
  const auto name = [&](std::string_view part) { return fmt::format("blk.{}.{}", layer, part); };
  const int64_t query_dim = int64_t{o_.num_q_heads} * o_.head_dim;
  const int64_t kv_dim = int64_t{KvHeads(layer)} * o_.head_dim;
  const std::string& type = o_.weight_type;
  AddVector(name("attn_norm.weight"), o_.embed_dim, 1, 0.1f);
  // The order in which converters write them: neither q, k, v nor gate, up need be neighbours.
  AddMatrix(name("ffn_down.weight"), o_.feed_forward_dim, o_.embed_dim, 0.7f, type);
  AddMatrix(name("ffn_gate.weight"), o_.embed_dim, o_.feed_forward_dim, 1.5f, type);
  AddMatrix(name("ffn_up.weight"), o_.embed_dim, o_.feed_forward_dim, 1.5f, type);
  AddVector(name("ffn_norm.weight"), o_.embed_dim, 1, 0.1f);
  AddMatrix(name("attn_k.weight"), o_.embed_dim, kv_dim, 1.5f, type);
  AddMatrix(name("attn_output.weight"), query_dim, o_.embed_dim, 0.7f, type);
  AddMatrix(name("attn_q.weight"), o_.embed_dim, query_dim, 1.5f, type);
  AddMatrix(name("attn_v.weight"), o_.embed_dim, kv_dim, 1,
            o_.value_type.empty() ? type : o_.value_type);
  if (o_.biases != Biases::kNone) {
    AddVector(name("attn_q.bias"), query_dim, 0, 0.5f);
    AddVector(name("attn_k.bias"), kv_dim, 0, 0.5f);
    AddVector(name("attn_v.bias"), kv_dim, 0, 0.5f);
  }
  if (o_.biases == Biases::kQkvAndOutput) {
    AddVector(name("attn_output.bias"), o_.embed_dim, 0, 0.2f);
  }
  if (o_.family == "qwen3" || o_.family == "gemma3") {
    AddVector(name("attn_q_norm.weight"), o_.head_dim, 1.5f, 0.3f);
    AddVector(name("attn_k_norm.weight"), o_.head_dim, 1.5f, 0.3f);
  }
  if (o_.family == "gemma3") {
    AddVector(name("post_attention_norm.weight"), o_.embed_dim, 1, 0.1f);
    AddVector(name("post_ffw_norm.weight"), o_.embed_dim, 1, 0.1f);
  }
}

void RandomGguf::AddMarks() {
  // The deviation that AddLayer() gives to the channels of queries.
  const float deviation = 1.5f / std::sqrt(static_cast<float>(o_.embed_dim));
  for (int layer = 0; layer < o_.num_layers; ++layer) {
    const std::string name = fmt::format("blk.{}.attn_dms_alpha", layer);
    AddTensor(name + "_norm.weight", GGML_TYPE_F32, o_.embed_dim, 1,
              Normal(o_.embed_dim, 1, 0.1f, &random_marks_));
    AddTensor(name + ".weight", GGML_TYPE_F32, o_.embed_dim, KvHeads(layer),
              Normal(int64_t{o_.embed_dim} * KvHeads(layer), 0, deviation, &random_marks_));
  }
}

void RandomGguf::AddTensors() {
  AddMatrix("token_embd.weight", o_.embed_dim, o_.num_tokens, 2, o_.weight_type);
  if (o_.rope == RandomGgufOptions::Rope::kLlama3) AddRopeFactors();
  for (int i = 0; i < o_.num_layers; ++i) AddLayer(i);
  AddVector("output_norm.weight", o_.embed_dim, 1, 0.1f);
  if (o_.embeddings == RandomGgufOptions::Embeddings::kUntied) {
    AddMatrix("output.weight", o_.embed_dim, o_.num_tokens, 2, o_.weight_type);
  }
  if (o_.eviction_window > 0 && o_.marks == RandomGgufOptions::Marks::kAdapter) AddMarks();
}

void RandomGguf::AddDflash(const RandomDflashOptions& head) {
  gguf_set_arr_data(gguf_.get(), Key("target_layers").c_str(), GGUF_TYPE_INT32,
                    head.target_layers.data(), head.target_layers.size());
  SetSize("block_size", head.block_size);
  gguf_set_val_u32(gguf_.get(), "tokenizer.ggml.mask_token_id", 0);
  const std::string& type = o_.weight_type;
  const int64_t query_dim = int64_t{o_.num_q_heads} * o_.head_dim;
  const int64_t kv_dim = int64_t{o_.num_kv_heads} * o_.head_dim;
  const auto features = static_cast<int64_t>(head.target_layers.size()) * o_.embed_dim;
  AddMatrix("fc.weight", features, o_.embed_dim, 1, type);
  AddVector("enc.output_norm.weight", o_.embed_dim, 1, 0.1f);
  AddVector("output_norm.weight", o_.embed_dim, 1, 0.1f);
  if (head.has_markov_head) {
    AddMatrix("markov_w1.weight", 32, o_.num_tokens, 1, "f32");
    AddMatrix("markov_w2.weight", 32, o_.num_tokens, 1, "f32");
  }
  for (int layer = 0; layer < o_.num_layers; ++layer) {
    const auto name = [&](std::string_view part) { return fmt::format("blk.{}.{}", layer, part); };
    AddVector(name("attn_norm.weight"), o_.embed_dim, 1, 0.1f);
    AddVector(name("ffn_norm.weight"), o_.embed_dim, 1, 0.1f);
    AddVector(name("attn_q_norm.weight"), o_.head_dim, 1.5f, 0.3f);
    AddVector(name("attn_k_norm.weight"), o_.head_dim, 1.5f, 0.3f);
    AddMatrix(name("attn_q.weight"), o_.embed_dim, query_dim, 1.5f, type);
    AddMatrix(name("attn_k.weight"), o_.embed_dim, kv_dim, 1.5f, type);
    AddMatrix(name("attn_v.weight"), o_.embed_dim, kv_dim, 1, type);
    AddMatrix(name("attn_output.weight"), query_dim, o_.embed_dim, 2, type);
    AddMatrix(name("ffn_gate.weight"), o_.embed_dim, o_.feed_forward_dim, 1.5f, type);
    AddMatrix(name("ffn_up.weight"), o_.embed_dim, o_.feed_forward_dim, 1.5f, type);
    AddMatrix(name("ffn_down.weight"), o_.feed_forward_dim, o_.embed_dim, 0.7f, type);
  }
}

void RandomGguf::AddAssistant(const RandomAssistantOptions& assistant) {
  SetSize("embedding_length_out", assistant.target_embed_dim);
  SetSize("nextn_predict_layers", o_.num_layers);
  SetSize("attention.key_length_swa", assistant.window_head_dim);
  SetSize("attention.value_length_swa", assistant.window_head_dim);
  SetSize("rope.dimension_count_swa", assistant.window_head_dim);
  const std::string& type = o_.weight_type;
  AddMatrix("token_embd.weight", o_.embed_dim, o_.num_tokens, 2, type);
  AddVector("output_norm.weight", o_.embed_dim, 1, 0.1f);
  AddMatrix("nextn.pre_projection.weight", int64_t{2} * assistant.target_embed_dim, o_.embed_dim, 1,
            type);
  AddMatrix("nextn.post_projection.weight", o_.embed_dim, assistant.target_embed_dim, 1, type);
  AddVector("rope_freqs.weight", o_.head_dim / 2, 1, 0);
  for (int layer = 0; layer < o_.num_layers; ++layer) {
    const auto name = [&](std::string_view part) { return fmt::format("blk.{}.{}", layer, part); };
    const int head_dim = o_.window_layers[layer] ? assistant.window_head_dim : o_.head_dim;
    const int64_t query_dim = int64_t{o_.num_q_heads} * head_dim;
    for (const std::string_view norm :
         {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"}) {
      AddVector(name(fmt::format("{}.weight", norm)), o_.embed_dim, 1, 0.1f);
    }
    AddVector(name("attn_q_norm.weight"), head_dim, 1, 0.1f);
    AddVector(name("layer_output_scale.weight"), 1, 1, 0.1f);
    AddMatrix(name("attn_q.weight"), o_.embed_dim, query_dim, 1, type);
    AddMatrix(name("attn_output.weight"), query_dim, o_.embed_dim, 1, type);
    AddMatrix(name("ffn_gate.weight"), o_.embed_dim, o_.feed_forward_dim, 1.5f, type);
    AddMatrix(name("ffn_up.weight"), o_.embed_dim, o_.feed_forward_dim, 1.5f, type);
    AddMatrix(name("ffn_down.weight"), o_.feed_forward_dim, o_.embed_dim, 0.7f, type);
  }
}

void RandomGguf::AddEagle3(const RandomEagle3Options& head, int target_embed_dim) {
  gguf_set_arr_data(gguf_.get(), Key("target_layers").c_str(), GGUF_TYPE_INT32,
                    head.target_layers.data(), head.target_layers.size());
  SetSize("target_hidden_size", target_embed_dim);
  gguf_set_val_bool(gguf_.get(), Key("norm_before_fc").c_str(), head.norm_before_fc);
  gguf_set_val_bool(gguf_.get(), Key("norm_before_residual").c_str(), head.norm_before_residual);
  const std::string& type = o_.weight_type;
  const int64_t features = uint32_t{3} * static_cast<uint32_t>(target_embed_dim);  // as libllama
  const int64_t both = int64_t{2} * o_.embed_dim;
  const int64_t query_dim = int64_t{o_.num_q_heads} * o_.head_dim;
  const int64_t kv_dim = int64_t{o_.num_kv_heads} * o_.head_dim;
  AddMatrix("fc.weight", features, o_.embed_dim, 1, type);
  if (head.norm_before_fc) AddVector("enc.output_norm.weight", features, 1, 0.1f);
  AddVector("blk.0.attn_norm.weight", o_.embed_dim, 1, 0.1f);
  AddVector("blk.0.attn_norm_2.weight", o_.embed_dim, 1, 0.1f);
  AddMatrix("blk.0.attn_q.weight", both, query_dim, 1.5f, type);
  AddMatrix("blk.0.attn_k.weight", both, kv_dim, 1.5f, type);
  AddMatrix("blk.0.attn_v.weight", both, kv_dim, 1, type);
  AddMatrix("blk.0.attn_output.weight", query_dim, o_.embed_dim, 2, type);
  AddVector("blk.0.ffn_norm.weight", o_.embed_dim, 1, 0.1f);
  AddMatrix("blk.0.ffn_gate.weight", o_.embed_dim, o_.feed_forward_dim, 1.5f, type);
  AddMatrix("blk.0.ffn_up.weight", o_.embed_dim, o_.feed_forward_dim, 1.5f, type);
  AddMatrix("blk.0.ffn_down.weight", o_.feed_forward_dim, o_.embed_dim, 0.7f, type);
  AddVector("output_norm.weight", o_.embed_dim, 1, 0.1f);
  if (head.tables == RandomEagle3Options::Tables::kTargets) return;
  AddMatrix("token_embd.weight", o_.embed_dim, o_.num_tokens, 2, type);
  const int num_drafted = head.num_drafted > 0 ? head.num_drafted : o_.num_tokens;
  AddMatrix("output.weight", o_.embed_dim, num_drafted, 2, type);
  if (head.num_drafted == 0) return;
  ggml_tensor* const table = ggml_new_tensor_1d(ggml_.get(), GGML_TYPE_I64, num_drafted);
  ggml_set_name(table, "d2t");
  std::vector<std::byte>& bytes = data_.emplace_back(ggml_nbytes(table));
  table->data = bytes.data();
  auto* const tokens = static_cast<int64_t*>(table->data);
  for (int64_t i = 0; i < num_drafted; ++i) tokens[i] = i * o_.num_tokens / num_drafted;
  if (head.has_wrong_token) tokens[num_drafted / 2] = o_.num_tokens;
  gguf_add_tensor(gguf_.get(), table);
}

}  // namespace

Status WriteRandomEagle3(const RandomGgufOptions& target, const RandomEagle3Options& options,
                         const std::string& path) {
  RandomGgufOptions own = target;
  own.family = "eagle3";
  own.num_layers = 1;
  own.weight_type = options.weight_type;
  own.seed = target.seed + 500;
  if (options.embed_dim > 0) own.embed_dim = options.embed_dim;
  EBB_RETURN_IF_ERROR(CheckOptions(own));
  RandomGguf head(own);
  head.AddMetadata();
  head.AddTokenizer();
  head.AddEagle3(options,
                 options.target_hidden_size > 0 ? options.target_hidden_size : target.embed_dim);
  return head.WriteTo(path) ? OkStatus() : IoError(fmt::format("cannot write {}", path));
}

Status WriteRandomDflash(const RandomGgufOptions& target, const RandomDflashOptions& options,
                         const std::string& path) {
  RandomGgufOptions own = target;
  own.family = "dflash";
  own.num_layers = 2;
  own.weight_type = options.weight_type;
  own.seed = target.seed + 600;
  own.sliding_window = options.sliding_window;
  own.window_layers = {true, false};
  EBB_RETURN_IF_ERROR(CheckOptions(own));
  RandomGguf head(own);
  head.AddMetadata();
  head.AddTokenizer();
  head.AddDflash(options);
  return head.WriteTo(path) ? OkStatus() : IoError(fmt::format("cannot write {}", path));
}

Status WriteRandomAssistant(const RandomAssistantOptions& options, const std::string& path) {
  const RandomGgufOptions own = {.family = "gemma4-assistant",
                                 .num_layers = 3,
                                 .embed_dim = 96,
                                 .num_q_heads = 4,
                                 .num_kv_heads = options.num_kv_heads,
                                 .sliding_window = options.sliding_window,
                                 .window_layers = {true, true, false},
                                 .head_dim = options.head_dim,
                                 .feed_forward_dim = 96,
                                 .num_tokens = options.num_tokens,
                                 .context = 256,
                                 .weight_type = options.weight_type,
                                 .tokenizer = RandomGgufOptions::Tokenizer::kMinimal,
                                 .seed = 900};
  EBB_RETURN_IF_ERROR(CheckOptions(own));
  RandomGguf assistant(own);
  assistant.AddMetadata();
  assistant.AddTokenizer();
  assistant.AddAssistant(options);
  return assistant.WriteTo(path) ? OkStatus() : IoError(fmt::format("cannot write {}", path));
}

Status WriteRandomGguf(const RandomGgufOptions& options, const std::string& path) {
  EBB_RETURN_IF_ERROR(CheckOptions(options));
  RandomGguf model(options);
  model.AddMetadata();
  model.AddTokenizer();
  model.AddTensors();
  return model.WriteTo(path) ? OkStatus() : IoError(fmt::format("cannot write {}", path));
}

Status WriteRandomAdapter(const RandomGgufOptions& options, const std::string& path) {
  RandomGguf adapter(options);
  adapter.AddAdapterMetadata();
  adapter.AddMarks();
  return adapter.WriteTo(path) ? OkStatus() : IoError(fmt::format("cannot write {}", path));
}

}  // namespace ebb
