// Describes a model of any architecture that libllama knows.
//
// libllama parses the metadata, names the tensors and builds graphs; ebb places the weights, keeps
// the rows of the KV cache and runs the graphs. Open() builds a graph of one token before any
// weight is read; its attention nodes give the shape of the cache, and unsupported models are
// refused there.
//
// Thread safety: any number of threads may ask for graphs; they are built one at a time.
#ifndef EBB_MODEL_LIBRARY_LIBRARY_MODEL_H_
#define EBB_MODEL_LIBRARY_LIBRARY_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/loaded/gguf_file.h"
#include "src/model/loaded/loaded_model.h"
#include "src/model/loaded/vocabulary.h"
#include "src/model/loaded/weights.h"

namespace ebb {

class LibraryModel {
 public:
  // Reads the metadata of a file and builds a graph of one token without weights. Errors: Corrupt;
  // Unsupported, which names the architecture and the missing part; InvalidArgument (options, a
  // head that does not belong to its target).
  // REQUIRES: the file outlives the call; LoadWeights() gets the same file.
  static Result<std::unique_ptr<LibraryModel>> Open(const GgufFile& file,
                                                    const ModelOptions& options);
  ~LibraryModel();
  LibraryModel(const LibraryModel&) = delete;
  LibraryModel& operator=(const LibraryModel&) = delete;

  // Returns the hyperparameters; num_layers counts the layers that store rows.
  [[nodiscard]] const Hyperparameters& hparams() const;
  // Returns a layer's divisors of RoPE's frequencies, by which keys are rotated; null: none.
  [[nodiscard]] ggml_tensor* RopeFactors(int layer) const;
  // Returns a layer's AttentionCall::sinks; null: none.
  [[nodiscard]] ggml_tensor* Sinks(int layer) const;
  // Returns the weights that graphs read, except tables whose rows are looked up by token.
  [[nodiscard]] const std::vector<ggml_tensor*>& weights_read() const;
  // Returns the weights that tokens are multiplied with.
  [[nodiscard]] const std::vector<const ggml_tensor*>& multiplied_weights() const;
  // Returns the name of a node that multiplies two computed matrices; empty if there is none.
  [[nodiscard]] const std::string& computed_product() const;
  // Moves the libllama model, which also has the tokenizer, out of this object. REQUIRES: the model
  // outlives this object.
  [[nodiscard]] VocabModel TakeModel();

  // Moves the model's MTP layer out of this object: a view of the same libllama model, whose graphs
  // are those of the layer. REQUIRES: this object and its libllama model outlive it; LoadWeights()
  // was called, which places its weights too. Null: it was not loaded; mtp_obstacle() says why.
  [[nodiscard]] std::unique_ptr<LibraryModel> TakeMtp();
  [[nodiscard]] const std::string& mtp_obstacle() const;

  // Gives every weight its memory: in the mapped file, packed for the CPU's kernels, or copied to
  // huge pages. for_device: weights stay in the mapped file, from which a device's copies are made.
  // Errors: those of PlaceLibraryWeights().
  Status LoadWeights(const GgufFile& file, WeightMode mode, bool for_device,
                     WeightBuffers* buffers);
  [[nodiscard]] uint64_t weight_bytes() const;
  [[nodiscard]] uint64_t lookup_bytes() const;
  // Returns the bytes of the experts' weights; 0: there are none. expert_share() returns the part
  // of them that a token reads; 1: there are none.
  [[nodiscard]] uint64_t expert_bytes() const;
  [[nodiscard]] double expert_share() const;

  // Checks that graphs give these hidden rows of blocks, [embed_dim] for each token; they may be
  // kEmbeddedRows and kHeadRows. Errors: Unsupported.
  [[nodiscard]] Status CheckGivesRows(std::span<const int> blocks) const;
  // Checks that the graph has a place for this layout of eviction marks. Errors: Unsupported.
  [[nodiscard]] Status CheckTakesMarks(EvictionLayout layout) const;

  // Impl holds the input from which src/model/library builds graphs.
  struct Impl;
  [[nodiscard]] const Impl& impl() const { return *impl_; }

 private:
  // Opens the MTP layer of a libllama model that was loaded with it. Errors: Unsupported; Corrupt.
  Status OpenMtp();
  explicit LibraryModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_LIBRARY_MODEL_H_
