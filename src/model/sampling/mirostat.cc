#include "src/model/sampling/mirostat.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace ebb {

void SortByProbability(llama_token_data_array* array) {
  const std::span<llama_token_data> all(array->data, array->size);
  std::ranges::sort(all, [](const llama_token_data& a, const llama_token_data& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  double sum = 0;
  for (const llama_token_data& one : all) sum += std::exp(double{one.logit} - all.front().logit);
  for (llama_token_data& one : all) {
    one.p = static_cast<float>(std::exp(double{one.logit} - all.front().logit) / sum);
  }
  array->sorted = true;
}

size_t Mirostat::CountByVersion1(const llama_token_data_array& array) const {
  // The paper fits Zipf's exponent s to the likeliest tokens: p(i) is proportional to i^-s.
  constexpr size_t kFitted = 100;
  double products = 0;
  double squares = 0;
  for (size_t i = 0; i + 1 < std::min(kFitted, array.size) && array.data[i + 1].p > 0; ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * std::log(double{array.data[i].p} / array.data[i + 1].p);
    squares += t * t;
  }
  const double s = squares > 0 ? products / squares : 1;
  const double epsilon = s - 1;
  const double count =
      std::pow(epsilon * std::exp2(double{mu_}) / (1 - std::pow(vocab_size_, -epsilon)), 1 / s);
  // An exponent of exactly 1, or none at all, has no such count; all candidates stay.
  if (!std::isfinite(count)) return array.size;
  return static_cast<size_t>(std::clamp(count, 1.0, static_cast<double>(array.size)));
}

void Mirostat::Apply(llama_token_data_array* array) const {
  SortByProbability(array);
  if (version_ == 1) {
    array->size = CountByVersion1(*array);
  } else {
    size_t count = 1;
    while (count < array->size && -std::log2(double{array->data[count].p}) <= mu_) ++count;
    array->size = count;
  }
}

void Mirostat::Observe(double probability) {
  mu_ -= eta_ * static_cast<float>(-std::log2(probability) - tau_);
}

}  // namespace ebb
