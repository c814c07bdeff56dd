#include "apps/ebb/serve/reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ebb::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Reach(const std::vector<std::string>& addresses, bool has_keys) {
  return ReachText(addresses, has_keys,
                   [](bool is_v6) { return std::string(is_v6 ? "[2001:db8::7]" : "192.168.1.7"); });
}

TEST(ReachText, AServerOfThisMachineAloneNeedsNoWord) {
  EXPECT_EQ(Reach({"127.0.0.1:8080", "[::1]:8080", "unix:/run/ebb"}, false), "");
}

TEST(ReachText, AllNetworksAreNamedByTheAddressThatAPhoneOpens) {
  EXPECT_EQ(Reach({"0.0.0.0:8080", "[::]:8080"}, true),
            "ebb: other devices of this network open http://192.168.1.7:8080\n"
            "ebb: other devices of this network open http://[2001:db8::7]:8080\n");
  EXPECT_EQ(ReachText(std::vector<std::string>{"0.0.0.0:80"}, true, [](bool) { return ""; }), "");
}

TEST(ReachText, WithoutKeysItWarnsWhereOthersReachIt) {
  EXPECT_THAT(Reach({"0.0.0.0:8080"}, false), HasSubstr("it has no API keys: --api-keys FILE"));
  const std::string named = Reach({"10.1.2.3:8080"}, false);
  EXPECT_THAT(named, HasSubstr("it has no API keys"));
  EXPECT_THAT(named, Not(HasSubstr("http://")));
  EXPECT_EQ(Reach({"10.1.2.3:8080"}, true), "");
}

TEST(KeysText, SaysThatKeysAreNeededAndWhichIsMissing) {
  EXPECT_EQ(KeysText("keys", 1, false), "ebb: requests need the API key of keys\n");
  const std::string text = KeysText("keys", 2, true);
  EXPECT_THAT(text, HasSubstr("one of the 2 API keys of keys\n"));
  EXPECT_THAT(text, HasSubstr("--new-key NAME --admin"));
}

TEST(AddressOnNetwork, IsAnAddressThatIsNotThisMachineAlone) {
  const std::string own = AddressOnNetwork(/*is_v6=*/false);
  EXPECT_THAT(own, Not(HasSubstr("127.")));
  EXPECT_NE(own, "0.0.0.0");
}

}  // namespace
}  // namespace ebb::cli
