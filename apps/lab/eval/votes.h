// Several answers to one problem, put together (Dynamic Memory Sparsification, 2.1).
#ifndef EBB_APPS_EVAL_VOTES_H_
#define EBB_APPS_EVAL_VOTES_H_

#include <map>
#include <string>

namespace ebb::cli {

class Votes {
 public:
  // `extracted`: empty where there was no answer, which is no vote.
  void Add(bool correct, const std::string& extracted);

  // Whether the most frequent answer is right; ties go to the answer that sorts first.
  [[nodiscard]] bool MajorityIsRight() const;
  // pass@all
  [[nodiscard]] bool AnyIsRight() const { return has_right_; }

 private:
  int& CountOfWrong(const std::string& extracted);

  std::map<std::string, int> counts_;
  bool has_right_ = false;
  std::string right_;  // however it was written: all right answers are the first one
};

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_VOTES_H_
