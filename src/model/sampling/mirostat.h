// Mirostat (Basu et al., 2007.14966) keeps the surprise of the chosen tokens near a target by
// cutting the unlikely candidates off.
#ifndef EBB_MODEL_SAMPLING_MIROSTAT_H_
#define EBB_MODEL_SAMPLING_MIROSTAT_H_

#include <llama.h>

namespace ebb {

// Sorts the candidates by falling logit, of equal ones by rising token, and sets their
// probabilities. REQUIRES: one candidate is possible.
void SortByProbability(llama_token_data_array* array);

// Mirostat holds the bound on the surprise, mu in bits, which it adjusts at each token. Copying it
// copies the bound.
class Mirostat {
 public:
  // Version 1 estimates how many candidates stay from the slope of their probabilities
  // (`vocab_size` of them in all); version 2 keeps those with a surprise of at most mu. `tau` is
  // the target in bits, `eta` the share of an error by which mu changes.
  Mirostat(int version, float tau, float eta, int vocab_size)
      : version_(version), tau_(tau), eta_(eta), vocab_size_(vocab_size), mu_(2 * tau) {}

  // Cuts the unlikely candidates off.
  void Apply(llama_token_data_array* array) const;
  // Adjusts mu to the surprise of a token that was chosen with this probability.
  void Observe(double probability);

  [[nodiscard]] float mu() const { return mu_; }
  void set_mu(float mu) { mu_ = mu; }

 private:
  [[nodiscard]] size_t CountByVersion1(const llama_token_data_array& array) const;

  int version_;
  float tau_;
  float eta_;
  int vocab_size_;
  float mu_;
};

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_MIROSTAT_H_
