// A model: the weights, the tokenizer and the chat template of one GGUF file, and of an adapter's
// where there is one.
//
// Thread safety: immutable after Load(); any number of threads and engines may share one.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_MODEL_H_
#define EBB_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/chat.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

struct LoadedModel;  // src/model/loaded_model.h

// How weights are held. kDequantize widens every matrix to F32 on load, for exactness studies.
enum class WeightMode { kAsStored, kDequantize };

// How RoPE positions are scaled. kFromFile obeys the file's own metadata.
enum class RopeScaling { kFromFile, kNone, kLinear, kYarn };

// The builder of a model's graph: ebb's own decoder, which is slightly faster and serves a few
// families, or libllama's builders, which serve nearly every architecture.
enum class GraphSource { kAuto, kOwn, kLibrary };

struct ModelOptions {
  std::string path;
  // The bytes of a GGUF file in memory, aligned to 64 bytes, instead of the file at `path`, which
  // then is its name in messages alone. They outlive the model. Empty: the file is read.
  std::span<const std::byte> contents = {};
  std::string adapter =
      {};  // a file that makes the model mark rows (docs/dev/formats.md); empty: none
  WeightMode weights = WeightMode::kAsStored;
  // They are computed with on a device of DeviceKind::kBackend: none is laid out for the processor.
  bool for_device = false;
  RopeScaling rope_scaling = RopeScaling::kFromFile;
  float rope_factor = 0;  // > 1: context is this many times the trained one; needed by
                          // kLinear and kYarn, refused otherwise
  // The longest text that sessions are to hold, in tokens; 0: as long as the model was trained for.
  // A model with two sets of RoPE factors (LongRoPE: Phi-3, Phi-4) takes the short ones if the text
  // fits its original context, to which ModelShape::trained_context falls then.
  int context = 0;
  // The Jinja source of a chat template in place of the file's own, or "chatml"; empty: the file's.
  std::string chat_template = {};
  // kAuto: ebb's own decoder where it knows the family, libllama's builders otherwise.
  GraphSource graph = GraphSource::kAuto;
};

// Tokens that mark the parts of a prompt whose middle the model fills in; nothing: the vocabulary
// has no such token.
struct InfillTokens {
  std::optional<Token> prefix, suffix, middle;
  std::optional<Token> repository, file;  // in front of the names of a repository and of a file
};

class Model {
 public:
  // Errors: kNotFound, kIo; kCorrupt (truncated file, tensor out of bounds, wrong shape);
  // kUnsupported (the message lists the families that are supported; an adapter of another kind);
  // kInvalidArgument (rope scaling; an adapter of another family, or for a model that marks rows).
  // The file stays mapped. Where another program writes to it or truncates it, steps end with
  // kIo from then on and change nothing; for that the first Load() installs a handler of SIGBUS,
  // which passes on what does not concern the mapping. A file that is replaced by rename() is used
  // on.
  static Result<std::shared_ptr<const Model>> Load(const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const ModelShape& shape() const;
  // The architecture as the file names it: "llama", "qwen3moe".
  [[nodiscard]] std::string_view family() const;
  // Whether ebb's own decoder or libllama's builder makes the graph; never kAuto.
  [[nodiscard]] GraphSource graph_source() const;
  // "SmolLM2 135M Instruct, llama, Q4_1"; with an adapter ", adapter NAME" behind it.
  [[nodiscard]] std::string description() const;
  // Says why the bits of a token may depend, by rounding, on how its prompt is cut into steps and
  // on the other sequences of a step; empty: on this processor they do not.
  [[nodiscard]] std::string batch_dependence() const;
  [[nodiscard]] uint64_t weight_bytes() const;  // as held in memory
  [[nodiscard]] float attention_scale() const;  // of products of queries and keys
  // A model may mark rows itself (Dynamic Memory Sparsification): a marked row may go once it is so
  // many tokens old. 0: this one marks none. See docs/dev/formats.md.
  [[nodiscard]] int eviction_window() const;
  // The eviction logit of token t + shift decides on the row of token t. 0 to eviction_window().
  [[nodiscard]] int eviction_shift() const;
  // How many times fewer rows its marks were trained for (attention.dms.cr); 0: the file does not
  // say.
  [[nodiscard]] float trained_compression() const;
  // Identity of the files: a hash of their metadata, their tensor tables and a few elements of
  // every tensor.
  [[nodiscard]] uint64_t fingerprint() const;

  enum class Specials { kAsText, kParse };  // whether "<|im_start|>" in the text is one token
  enum class AddBos { kNo, kAsModelSays };
  // With kAsModelSays and kParse, a text that begins with the BOS token gets no second one.
  [[nodiscard]] Result<std::vector<Token>> Tokenize(std::string_view text, AddBos add_bos,
                                                    Specials specials) const;
  // Tokenizes prompt.text from the offset `begin` on. Special tokens that the chat template wrote
  // are parsed; what only looks like one, in the text of a message, is plain text.
  [[nodiscard]] Result<std::vector<Token>> TokenizePrompt(const ChatPrompt& prompt, AddBos add_bos,
                                                          size_t begin = 0) const;
  // The least number of tokens of a text of so many bytes: no token has more than
  // longest_token_bytes(). Counts without tokenizing.
  [[nodiscard]] size_t LeastTokens(size_t bytes) const;
  [[nodiscard]] size_t longest_token_bytes() const;
  // The bytes of a token; may end in the middle of a UTF-8 character. Control tokens give nothing
  // unless asked for.
  enum class ControlTokens { kHide, kShow };
  [[nodiscard]] std::string TokenText(Token token, ControlTokens control) const;
  [[nodiscard]] bool EndsGeneration(Token token) const;
  // Returns whether the vocabulary marks the token as a control token, as it does those that begin
  // and end messages.
  [[nodiscard]] bool IsControl(Token token) const;
  [[nodiscard]] InfillTokens infill_tokens() const;
  // The tokens that begin and end a text; nothing: the vocabulary has none.
  [[nodiscard]] std::optional<Token> BeginToken() const;
  [[nodiscard]] std::optional<Token> EndToken() const;
  // The Jinja source of the chat template; empty: there is none.
  [[nodiscard]] std::string_view chat_template() const;
  // The token that stands for nothing: the file's own padding, else the end of a text, else 0.
  [[nodiscard]] Token PaddingToken() const;

  // Applies the chat template, within limits of steps and bytes that grow with the
  // request. Errors: kInvalidArgument (names the field of the request that is wrong); kUnsupported
  // (names the field that the template cannot take, or says what the template itself raised, or
  // that it goes beyond its limits); kCorrupt (the template does not parse).
  using Thinking = ebb::Thinking;
  [[nodiscard]] Result<ChatPrompt> FormatChat(const ChatRequest& request) const;
  [[nodiscard]] Result<ChatPrompt> FormatChat(std::span<const ChatMessage> messages,
                                              Thinking thinking) const;
  // Whether the template tells the model which tools it may call; FormatChat() refuses tools
  // otherwise. True for a template that does not parse, whose error FormatChat() has.
  [[nodiscard]] bool TakesTools() const;

  [[nodiscard]] const LoadedModel& loaded() const { return *loaded_; }

 private:
  explicit Model(std::unique_ptr<LoadedModel> loaded);
  std::unique_ptr<LoadedModel> loaded_;
};

}  // namespace ebb

#endif  // EBB_MODEL_H_
