#include "lab/pebble/filler.h"

#include <array>
#include <cstddef>

namespace ebb::pebble {
namespace {

struct Filler {
  int num_checks = 0;
  std::string_view words = {};
};

constexpr std::array<Filler, 10> kFillers = {{
    {0, "That looks right to me . It is good to be slow and sure here ."},
    {1, "Good . So that is that , and now on with the next one ."},
    {0, "Hmm , let me look at that once more . Yes , that is fine , so go on with the next one ."},
    {1,
     "Well , this was not hard at all . I will write it down and then go on with the one after it "
     "."},
    {0,
     "Okay . This was easy , but not every one will be , so keep calm and go on step by step . "
     "Nothing can go wrong then ."},
    {0,
     "Wait , did I read the question right ? I think so . There is no hurry , and a small slip "
     "here would spoil all that comes after it ."},
    {1, "Fine . Let me write that down before I forget where I was ."},
    {0,
     "My head is clear , so on with it . Yes , I know that I said that before , but it is good to "
     "say it ."},
    {0,
     "Fine , one more is done . How far is it still ? Not so far , I think , so keep calm and keep "
     "going . My head is clear ."},
    {2, "Okay , of course , the same as I thought . Well , enough of that now ."},
}};

}  // namespace

void SayFiller(int result, std::string_view check, Writer* writer) {
  const Filler& filler = kFillers[static_cast<size_t>(result)];
  for (int i = 0; i < filler.num_checks; ++i) {
    writer->Muse("Check :");
    writer->Muse(check);
    writer->Muse(", yes .");
  }
  writer->Muse(filler.words);
}

}  // namespace ebb::pebble
