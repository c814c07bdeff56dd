#include "ebb/state.h"

namespace ebb {

void StateReader::Fail(std::string_view why) {
  if (status_.ok()) status_ = Corrupt(what_ + " makes no sense: " + std::string(why));
  left_ = {};
}

Status StateReader::End() {
  if (ok() && !left_.empty()) Fail(std::to_string(left_.size()) + " bytes are left over");
  return status_;
}

}  // namespace ebb
