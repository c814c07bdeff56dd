// Model holds the weights, the tokenizer and the chat template of one GGUF file, and the weights of
// an adapter's file if there is one.
//
// Thread safety: immutable after Load(); any number of threads and engines may share one model.
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
#include "ebb/lossless.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

struct LoadedModel;  // src/model/loaded/loaded_model.h
class Model;

// WeightMode selects how weights are held in memory. kDequantize converts every matrix to F32 on
// load, for studies of exactness. kUnread plans memory as kAsStored does but reads no weight, for
// FitModelOf() on a file of which only the beginning is there; sessions of the model take no step.
enum class WeightMode { kAsStored, kDequantize, kUnread };

// RopeScaling selects how RoPE positions are scaled. kFromFile follows the file's metadata.
enum class RopeScaling { kFromFile, kNone, kLinear, kYarn };

// ModelOptions say which file to load and how.
struct ModelOptions {
  std::string path;
  // Holds a GGUF file in memory, aligned to 64 bytes, to be used instead of the file at `path`,
  // which then only names the model in messages. REQUIRES: the bytes outlive the model. Empty:
  // Load() reads the file.
  std::span<const std::byte> contents = {};
  std::string adapter =
      {};  // a file that makes the model mark rows (docs/dev/formats.md); empty: none
  WeightMode weights = WeightMode::kAsStored;
  // Declares whether an accelerator (DeviceKind::kBackend) will compute with the weights: Load()
  // then lays none of them out for the processor.
  bool for_device = false;
  // Loads the file's layer for multi-token prediction (MTP, also called NextN), if it has one that
  // ebb can run, as a source of guesses (Speculation::kMtp). Engines then keep a cache for it.
  // Ignored with for_device.
  bool loads_mtp = false;
  // Gives the model for which the file guesses if it holds a head: part of a model that reads the
  // target's hidden rows and may read its embeddings, output matrix or cache (EAGLE-3, Gemma 4's
  // assistant). Load() refuses a
  // head without its target or with one that it does not belong to; it ignores the target of a
  // whole model. The head keeps the target alive.
  std::shared_ptr<const Model> target = nullptr;
  RopeScaling rope_scaling = RopeScaling::kFromFile;
  // Stretches the context to this many times the trained one, if above 1. kLinear and kYarn need
  // it; other scalings refuse it.
  float rope_factor = 0;
  // Sets the longest text that sessions will hold, in tokens; 0: as long as the model was trained
  // for. A model with two sets of RoPE factors (LongRoPE: Phi-3, Phi-4) uses the short factors if
  // the text fits its original context; ModelShape::trained_context is then that original context.
  int context = 0;
  // Replaces the file's chat template: Jinja source, or "chatml". Empty: the file's template.
  std::string chat_template = {};
};

// InfillTokens holds the tokens that mark the parts of a fill-in-the-middle prompt. A member
// without value: the vocabulary has no such token.
struct InfillTokens {
  std::optional<Token> prefix, suffix, middle;
  std::optional<Token> repository, file;  // in front of the names of a repository and of a file
};

class Model {
 public:
  // Loads a model. The file stays mapped. Errors: kNotFound, kIo; kCorrupt (truncated file, tensor
  // out of bounds, wrong shape); kUnsupported (the message names the part that is not supported;
  // an adapter of another kind); kInvalidArgument (rope scaling; an adapter of another family, or
  // for a model that marks rows itself). If another program writes to the mapped file or truncates
  // it, later steps fail with kIo and change nothing; to notice that, the first Load() installs a
  // handler of SIGBUS, which passes on signals that do not concern the mapping. A file that is
  // replaced by rename() stays in use.
  static Result<std::shared_ptr<const Model>> Load(const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const ModelShape& shape() const;
  // Returns the architecture as the file names it: "llama", "qwen3moe".
  [[nodiscard]] std::string_view family() const;
  // Returns "SmolLM2 135M Instruct, llama, Q4_1", followed by ", adapter NAME" if there is an
  // adapter.
  [[nodiscard]] std::string description() const;
  // Returns the reason why the bits of a token may depend, by rounding, on how its prompt is cut
  // into steps and on the other sequences of a step; empty: on this processor they do not depend on
  // them.
  [[nodiscard]] std::string batch_dependence() const;
  // Returns why sessions cannot guess by the file's MTP layer (ModelOptions::loads_mtp); empty:
  // they can.
  [[nodiscard]] const std::string& mtp_obstacle() const;
  // Returns the source of guesses that the model is as EngineOptions::draft_model:
  // Speculation::kModel, or the kind of head that the file holds.
  [[nodiscard]] Speculation draft_source() const;
  [[nodiscard]] uint64_t weight_bytes() const;  // as held in memory
  [[nodiscard]] float attention_scale() const;  // factor of q * k before softmax
  // Returns the age in tokens at which a row that the model itself marked (Dynamic Memory
  // Sparsification) may be evicted; 0: this model marks no rows. See docs/dev/formats.md.
  [[nodiscard]] int eviction_window() const;
  // Returns `shift`, from 0 to eviction_window(): the eviction logit of token t + shift decides on
  // the row of token t.
  [[nodiscard]] int eviction_shift() const;
  // Returns the compression ratio that the model's marks were trained for (attention.dms.cr); 0:
  // the file does not say.
  [[nodiscard]] float trained_compression() const;
  // Returns a hash that identifies the files: of their metadata, their tensor tables and a few
  // elements of every tensor.
  [[nodiscard]] uint64_t fingerprint() const;

  enum class Specials { kAsText, kParse };  // whether "<|im_start|>" in the text is one token
  enum class AddBos { kNo, kAsModelSays };
  // Tokenizes a text. With kAsModelSays and kParse, a text that already begins with the BOS token
  // gets no second one.
  [[nodiscard]] Result<std::vector<Token>> Tokenize(std::string_view text, AddBos add_bos,
                                                    Specials specials) const;
  // Tokenizes prompt.text from the byte offset `begin` on. Parses the special tokens that the chat
  // template wrote; text of a message that looks like a special token stays plain text.
  [[nodiscard]] Result<std::vector<Token>> TokenizePrompt(const ChatPrompt& prompt, AddBos add_bos,
                                                          size_t begin = 0) const;
  // Returns the least number of tokens that a text of `bytes` bytes can have, since no token has
  // more than longest_token_bytes() bytes. Does not tokenize.
  [[nodiscard]] size_t LeastTokens(size_t bytes) const;
  // Returns the bytes of the vocabulary's longest token.
  [[nodiscard]] size_t longest_token_bytes() const;
  // Returns the bytes of a token, which may end in the middle of a UTF-8 character. Control tokens
  // return nothing with kHide.
  enum class ControlTokens { kHide, kShow };
  [[nodiscard]] std::string TokenText(Token token, ControlTokens control) const;
  // Returns whether the token ends an answer (end of text, end of turn).
  [[nodiscard]] bool EndsGeneration(Token token) const;
  // Returns whether the vocabulary marks the token as a control token, such as the tokens that
  // begin and end messages.
  [[nodiscard]] bool IsControl(Token token) const;
  // Returns the vocabulary's tokens for fill-in-the-middle prompts.
  [[nodiscard]] InfillTokens infill_tokens() const;
  // Returns the token that begins (ends) a text; nothing: the vocabulary has no such token.
  [[nodiscard]] std::optional<Token> BeginToken() const;
  [[nodiscard]] std::optional<Token> EndToken() const;
  // Returns the Jinja source of the chat template; empty: there is none.
  [[nodiscard]] std::string_view chat_template() const;
  // Returns the padding token: the file's own, otherwise the token that ends a text, otherwise 0.
  [[nodiscard]] Token PaddingToken() const;

  // Applies the chat template, within limits of steps and bytes that grow with the request. Errors:
  // kInvalidArgument (names the field of the request that is wrong); kUnsupported (names the field
  // that the template cannot express, or quotes the error that the template raised, or says that it
  // exceeds the limits); kCorrupt (the template does not parse).
  using Thinking = ebb::Thinking;
  [[nodiscard]] Result<ChatPrompt> FormatChat(const ChatRequest& request) const;
  [[nodiscard]] Result<ChatPrompt> FormatChat(std::span<const ChatMessage> messages,
                                              Thinking thinking) const;
  // Returns whether the template tells the model which tools it may call; FormatChat() refuses
  // tools otherwise. Returns true for a template that does not parse, so that FormatChat() reports
  // the error.
  [[nodiscard]] bool TakesTools() const;

  [[nodiscard]] const LoadedModel& loaded() const { return *loaded_; }

 private:
  explicit Model(std::unique_ptr<LoadedModel> loaded);
  void TakeMtpLayer();
  std::unique_ptr<LoadedModel> loaded_;
};

}  // namespace ebb

#endif  // EBB_MODEL_H_
