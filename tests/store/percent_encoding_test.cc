#include "src/store/percent_encoding.h"

#include <gtest/gtest.h>

namespace ebb::store {
namespace {

TEST(PercentEncodingTest, EveryByteComesBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::string encoded = PercentEncoded(all);
  EXPECT_EQ(encoded.find_first_of("/: .\n"), std::string::npos);
  EXPECT_EQ(PercentDecoded(encoded), all);
  EXPECT_EQ(PercentEncoded("a-Z_09:/"), "a-Z_09%3A%2F");
}

TEST(PercentEncodingTest, WhatIsNoCodeIsRefused) {
  EXPECT_EQ(PercentDecoded("a%3ab%3Ac"), "a:b:c");
  EXPECT_EQ(PercentDecoded(""), "");
  for (const char* text : {"%", "a%", "%3", "%3g", "%g3", "%-1", "%+1", "% 1", "%0x"}) {
    EXPECT_EQ(PercentDecoded(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ebb::store
