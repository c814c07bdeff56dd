// A model as libllama knows it, of any architecture.
//
// libllama parses the metadata, names the tensors and builds graphs; ebb places the weights, keeps
// the rows of the KV cache and runs the graphs. A graph of one token, built before any weight is
// read, tells the shape of the cache, and everything that is not supported is refused there.
//
// Thread safety: any number of threads may build graphs; one at a time builds.
#ifndef EBB_MODEL_LIBRARY_LIBRARY_MODEL_H_
#define EBB_MODEL_LIBRARY_LIBRARY_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/gguf_file.h"
#include "src/model/loaded_model.h"
#include "src/model/vocabulary.h"
#include "src/model/weights.h"

namespace ebb {

class LibraryModel {
 public:
  // Reads the metadata of a file and builds a graph of one token without weights. Errors: Corrupt;
  // Unsupported, which names the architecture and the part that is missing; InvalidArgument
  // (options). REQUIRES: the file outlives the call; LoadWeights() gets the same one.
  static Result<std::unique_ptr<LibraryModel>> Open(const GgufFile& file,
                                                    const ModelOptions& options);
  ~LibraryModel();
  LibraryModel(const LibraryModel&) = delete;
  LibraryModel& operator=(const LibraryModel&) = delete;

  // num_layers counts the layers that store rows.
  [[nodiscard]] const Hyperparameters& hparams() const;
  // By layer: the divisors of the frequencies of RoPE, which keys are rotated by; null: none.
  [[nodiscard]] ggml_tensor* RopeFactors(int layer) const;
  // By layer: AttentionCall's; null: none.
  [[nodiscard]] ggml_tensor* Sinks(int layer) const;
  // Weights that graphs read. Tables whose rows are looked up by token are not among them.
  [[nodiscard]] const std::vector<ggml_tensor*>& weights_read() const;
  // Returns the weights that tokens are multiplied with.
  [[nodiscard]] const std::vector<const ggml_tensor*>& multiplied_weights() const;
  // Returns the name of a node that multiplies two computed matrices; empty if there is none.
  [[nodiscard]] const std::string& computed_product() const;
  // Gives up the libllama model, which has the tokenizer too. REQUIRES: it outlives this object.
  [[nodiscard]] VocabModel TakeModel();

  // Gives every weight its memory: in the mapped file, packed for the CPU's kernels, or copied to
  // huge pages. for_device: in the mapped file, which a device's copies are made from. Errors:
  // those of PlaceLibraryWeights().
  Status LoadWeights(const GgufFile& file, WeightMode mode, bool for_device,
                     WeightBuffers* buffers);
  [[nodiscard]] uint64_t weight_bytes() const;
  [[nodiscard]] uint64_t lookup_bytes() const;
  // The weights of experts, and the part of them that a token reads; 0 and 1: it has none.
  [[nodiscard]] uint64_t expert_bytes() const;
  [[nodiscard]] double expert_share() const;

  // Refuses a layout of eviction marks that the graph has no place for: Unsupported.
  [[nodiscard]] Status CheckTakesMarks(EvictionLayout layout) const;

  // What src/model/library builds graphs from.
  struct Impl;
  [[nodiscard]] const Impl& impl() const { return *impl_; }

 private:
  explicit LibraryModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_LIBRARY_MODEL_H_
