#include "ebb/state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ebb {
namespace {

TEST(State, WhatWasWrittenIsRead) {
  StateWriter writer;
  writer.Number<uint8_t>(7);
  writer.Number<int64_t>(-3);
  const std::vector<float> floats = {1.5f, -0.0f, std::numeric_limits<float>::quiet_NaN()};
  writer.Numbers<float>(floats);
  writer.Text("a\0b");
  StateReader reader(writer.bytes(), "a state");
  EXPECT_EQ(reader.Number<uint8_t>(), 7);
  EXPECT_EQ(reader.Number<int64_t>(), -3);
  const std::vector<float> read = reader.Numbers<float>();
  ASSERT_EQ(read.size(), 3u);
  EXPECT_TRUE(std::signbit(read[1]));
  EXPECT_TRUE(std::isnan(read[2]));
  EXPECT_EQ(reader.Text(), "a");
  EXPECT_TRUE(reader.End().ok());
}

TEST(State, NumbersAreLittleEndian) {
  StateWriter writer;
  writer.Number<uint32_t>(0x01020304);
  ASSERT_EQ(writer.bytes().size(), 4u);
  EXPECT_EQ(writer.bytes()[0], std::byte{4});
  EXPECT_EQ(writer.bytes()[3], std::byte{1});
}

TEST(State, AListLongerThanTheBytesTakesNoMemory) {
  StateWriter writer;
  writer.Number<uint64_t>(std::numeric_limits<uint64_t>::max());
  StateReader reader(writer.bytes(), "a state");
  EXPECT_TRUE(reader.Numbers<uint64_t>().empty());
  EXPECT_EQ(reader.status().code(), StatusCode::kCorrupt);
}

TEST(State, BytesCanBeCountedAlone) {
  StateWriter writer, count(StateWriter::Keep::kCount);
  const std::vector<float> list = {1, 2, 3};
  for (StateWriter* to : {&writer, &count}) {
    to->Number<uint16_t>(7);
    to->Numbers<float>(list);
    to->Text("ebb");
  }
  EXPECT_EQ(count.num_bytes(), 2u + 8 + 12 + 8 + 3);
  EXPECT_EQ(count.num_bytes(), writer.bytes().size());
  EXPECT_TRUE(count.bytes().empty());
}

TEST(State, AfterTheEndAllIsZeroAndTheFirstReasonStays) {
  StateWriter writer;
  writer.Number<uint8_t>(7);
  StateReader reader(writer.bytes(), "the list");
  EXPECT_EQ(reader.Number<uint32_t>(), 0u);
  EXPECT_EQ(reader.Number<uint8_t>(), 0u);
  reader.Fail("another reason");
  EXPECT_EQ(reader.status().message(), "the list makes no sense: it ends too early");
}

TEST(State, BytesThatAreLeftAreAnError) {
  StateWriter writer;
  writer.Number<uint32_t>(7);
  StateReader reader(writer.bytes(), "the list");
  EXPECT_EQ(reader.Number<uint8_t>(), 7u);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.End().message(), "the list makes no sense: 3 bytes are left over");
}

}  // namespace
}  // namespace ebb
