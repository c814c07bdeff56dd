#include "src/server/access/origin.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::HasSubstr;

TEST(CheckOrigin, TakesWhatBrowsersSend) {
  for (const char* text :
       {"*", "localhost", "null", "https://example.org", "http://localhost:3000", "http://10.0.0.2",
        "https://xn--mnchen-3ya.example:8443", "http://[::1]:8080", "https://[fe80::1]",
        "chrome-extension://abcdefghijklmnop", "app://obsidian.md", "http://my_host:443",
        "https://example.org.", "http://255.255.255.0:1", "http://[2001:db8::8:800:200c:417a]",
        "http://[::ffff:102:304]", "https://1.2.3.example", "https://1e3", "https://[::]:65535"}) {
    EXPECT_TRUE(CheckOrigin(text).ok()) << text;
  }
}

TEST(CheckOrigin, RefusesWhatNoPageSends) {
  constexpr const char* kPort = "no port that browsers send";
  constexpr const char* kNumber = "ends in a number is an address of IPv4";
  const std::pair<const char*, const char*> cases[] = {
      {"https://a.example,https://b.example", "once for each origin"},
      {"https://a.example, https://b.example", "once for each origin"},
      {" https://a.example", "has blanks"},
      {"https://*.example.org", "a * stands for all origins, alone"},
      {"**", "a * stands for all origins, alone"},
      {"example.org", "it has no scheme"},
      {"localhost:3000", "it has no scheme"},
      {"", "it has no scheme"},
      {"https://example.org/", "without a / or a path"},
      {"https://example.org/chat", "without a / or a path"},
      {"https://example.org?x", "without a / or a path"},
      {"https://Example.org", "in small letters"},
      {"HTTPS://example.org", "in small letters"},
      {"https://example.org:443", kPort},
      {"http://example.org:80", kPort},
      {"http://example.org:", kPort},
      {"http://example.org:0", kPort},
      {"http://example.org:080", kPort},
      {"http://example.org:65536", kPort},
      {"http://example.org:x", kPort},
      {"http://[::1]x", "no host"},
      {"http://[::1", "no host"},
      {"://example.org", "no scheme"},
      {"https://", "no host"},
      {"https://:3000", "no host"},
      {"https://user@example.org", "no host"},
      {"https://m\xc3\xbcnchen.example", "no host"},
      {"https://a..b", "a dot without a name before it"},
      {"https://.a", "a dot without a name before it"},
      {"https://a..", "a dot without a name before it"},
      {"https://.", "no host"},
      {"https://1.2.3", kNumber},
      {"https://1.2.3.4.5", kNumber},
      {"https://1.2.3.256", kNumber},
      {"https://1.2.3.04", kNumber},
      {"https://a.7", kNumber},
      {"https://a.0x7f", kNumber},
      {"https://2130706433", kNumber},
      {"https://[]", "no address of IPv6"},
      {"https://[1.2.3.4]", "no address of IPv6"},
      {"https://[1:2]", "no address of IPv6"},
      {"https://[::g]", "no address of IPv6"},
      {"https://[fe80::1%25eth0]", "no address of IPv6"},
      {"https://[0:0:0:0:0:0:0:1]", "in their shortest form"},
      {"https://[::01]", "in their shortest form"},
      {"https://[::ffff:1.2.3.4]", "in their shortest form, in hexadecimal digits"},
  };
  for (const auto& [text, why] : cases) {
    const Status status = CheckOrigin(text);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr(why)) << text;
    EXPECT_THAT(status.message(), HasSubstr("found \"" + std::string(text) + "\"")) << text;
  }
  const std::string label(63, 'a');
  EXPECT_TRUE(CheckOrigin("https://" + label + ".example").ok());
  EXPECT_THAT(CheckOrigin("https://" + label + "a.example").message(),
              HasSubstr("than 63 letters"));
  const std::string most = label + "." + label + "." + label + "." + std::string(61, 'b');
  EXPECT_TRUE(CheckOrigin("https://" + most).ok());
  EXPECT_THAT(CheckOrigin("https://" + most + "b").message(), HasSubstr("than 253 letters"));
}

TEST(CheckHostName, TakesNamesAlone) {
  for (const char* text : {"ebb", "Ebb.Example.org", "ebb.example.org.", "my_host", "10.0.0.2"}) {
    EXPECT_TRUE(CheckHostName(text).ok()) << text;
  }
  for (const char* text : {"", "https://ebb", "ebb:8080", "a,b", "a b", "*.example.org", "ebb/",
                           "a..b", "1.2.3", "[::1]"}) {
    const Status status = CheckHostName(text);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr("without a scheme, a port or a path")) << text;
  }
}

}  // namespace
}  // namespace ebb::server
