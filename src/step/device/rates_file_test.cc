#include "src/step/device/rates_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr DeviceRates kRates = {
    .copy_bytes_per_s = 50e9, .latency_seconds = 1e-5, .host_bytes_per_s = 30e9};

void WriteText(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(RatesFileTest, KeepsThemByName) {
  const TempFolder folder;
  const std::string path = folder.File("cache/ebb/rates.json");
  EXPECT_FALSE(FindRates(path, "one").has_value());
  ASSERT_TRUE(KeepRates(path, "one", kRates).ok());
  DeviceRates slower = kRates;
  slower.host_bytes_per_s = 10e9;
  ASSERT_TRUE(KeepRates(path, "two", slower).ok());
  ASSERT_TRUE(FindRates(path, "one").has_value());
  EXPECT_EQ(FindRates(path, "one")->host_bytes_per_s, 30e9);
  EXPECT_EQ(FindRates(path, "one")->latency_seconds, 1e-5);
  EXPECT_EQ(FindRates(path, "two")->host_bytes_per_s, 10e9);
  EXPECT_FALSE(FindRates(path, "three").has_value());
}

TEST(RatesFileTest, WhatIsNoSuchFileIsReplaced) {
  const TempFolder folder;
  const std::string path = folder.File("rates.json");
  for (const char* text :
       {"", "[1, 2", "[]", "7", R"({"one": 3})", R"({"one": {"copy_bytes_per_s": 5}})",
        R"({"one": {"copy_bytes_per_s": "fast", "latency_seconds": 1, "host_bytes_per_s": 1}})",
        R"({"one": {"copy_bytes_per_s": -1, "latency_seconds": 1, "host_bytes_per_s": 1}})"}) {
    WriteText(path, text);
    EXPECT_FALSE(FindRates(path, "one").has_value()) << text;
    ASSERT_TRUE(KeepRates(path, "one", kRates).ok());
    EXPECT_TRUE(FindRates(path, "one").has_value()) << text;
  }
}

TEST(RatesFileTest, SaysWhyItCannotBeWritten) {
  const TempFolder folder;
  WriteText(folder.File("file"), "");
  EXPECT_FALSE(KeepRates(folder.File("file") + "/rates.json", "one", kRates).ok());
}

}  // namespace
}  // namespace ebb
