#include "src/server/http/request_target.h"

#include "gtest/gtest.h"

namespace ebb::server {
namespace {

TEST(RequestTargetTest, AQueryIsNoPartOfThePath) {
  EXPECT_EQ(ParseTarget("/v1/models?a=b")->path, "/v1/models");
  EXPECT_EQ(ParseTarget("/v1/models")->authority, "");
  EXPECT_EQ(ParseTarget("*")->path, "*");
}

TEST(RequestTargetTest, AnAbsoluteFormHasAHostAndAPath) {
  struct Form {
    const char *target, *authority, *path;
  };
  for (const Form& form :
       {Form{"http://127.0.0.1:8080/v1/models", "127.0.0.1:8080", "/v1/models"},
        Form{"HTTPS://Example.org/a?b=/c", "Example.org", "/a"},
        Form{"http://user:word@[::1]:80/", "[::1]:80", "/"},
        Form{"http://localhost", "localhost", "/"}, Form{"http://localhost?q", "localhost", "/"}}) {
    const auto parsed = ParseTarget(form.target);
    ASSERT_TRUE(parsed.has_value()) << form.target;
    EXPECT_EQ(parsed->authority, form.authority);
    EXPECT_EQ(parsed->path, form.path);
  }
  for (const char* target : {"http:///v1/models", "http://", "http://:80/", "https://user@/"}) {
    EXPECT_FALSE(ParseTarget(target).has_value()) << target;
  }
}

TEST(RequestTargetTest, OnlyUnreservedCharactersAreDecoded) {
  EXPECT_EQ(ParseTarget("/%761/mod%65ls%2d%2E%5f%7E")->path, "/v1/models-._~");
  for (const char* path :
       {"/a%2Fb", "/a%2fb", "/%25", "/%00", "/%0d%0a", "/%C3%BC", "/%", "/%7", "/%7g", "/%%76"}) {
    const std::string expected = std::string(path) == "/%%76" ? "/%v" : path;
    EXPECT_EQ(ParseTarget(path)->path, expected);
  }
}

TEST(RequestTargetTest, ExtraSlashesCanBeTakenOut) {
  EXPECT_EQ(WithoutExtraSlashes("//v1///models//"), "/v1/models");
  EXPECT_EQ(WithoutExtraSlashes("/v1/models"), "/v1/models");
  EXPECT_EQ(WithoutExtraSlashes("///"), "/");
  EXPECT_EQ(WithoutExtraSlashes(""), "");
}

}  // namespace
}  // namespace ebb::server
