#include "src/server/http/listener.h"

#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/asio.hpp>

#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

namespace asio = boost::asio;
using asio::ip::make_address;
using asio::ip::tcp;
using testing::ElementsAre;
using testing::HasSubstr;

bool Connects(asio::io_context* io, const char* address, uint16_t port) {
  tcp::socket socket(*io);
  boost::system::error_code error;
  socket.connect({make_address(address), port}, error);
  return !error;
}

bool HasIpv6(asio::io_context* io) {
  tcp::acceptor acceptor(*io);
  boost::system::error_code error;
  acceptor.open(tcp::v6(), error);
  if (!error) acceptor.bind({make_address("::1"), 0}, error);
  return !error;
}

TEST(ListenerTest, AllAddressesAreListenedOnAtOnePort) {
  asio::io_context io;
  Listener listener(&io);
  const Status status =
      listener.OpenPorts({{make_address("127.0.0.1"), 0}, {make_address("127.0.0.2"), 0}});
  ASSERT_TRUE(status.ok()) << status.ToString();
  const uint16_t port = listener.port();
  EXPECT_THAT(listener.addresses(),
              ElementsAre(fmt::format("127.0.0.1:{}", port), fmt::format("127.0.0.2:{}", port)));
  EXPECT_TRUE(Connects(&io, "127.0.0.1", port));
  EXPECT_TRUE(Connects(&io, "127.0.0.2", port));
  EXPECT_FALSE(Connects(&io, "127.0.0.3", port));
  listener.Close();
  EXPECT_FALSE(Connects(&io, "127.0.0.1", port));
  EXPECT_FALSE(Connects(&io, "127.0.0.2", port));
}

TEST(ListenerTest, BothLoopbackAddressesAreListenedOn) {
  asio::io_context io;
  if (!HasIpv6(&io)) GTEST_SKIP() << "the machine has no IPv6";
  Listener listener(&io);
  ASSERT_TRUE(listener.OpenPorts({{make_address("127.0.0.1"), 0}, {make_address("::1"), 0}}).ok());
  EXPECT_EQ(listener.addresses().back(), fmt::format("[::1]:{}", listener.port()));
  EXPECT_TRUE(Connects(&io, "127.0.0.1", listener.port()));
  EXPECT_TRUE(Connects(&io, "::1", listener.port()));
  Listener any(&io);
  EXPECT_TRUE(any.OpenPorts({{make_address("0.0.0.0"), 0}, {make_address("::"), 0}}).ok());
}

TEST(ListenerTest, AnAddressThatTheMachineDoesNotHaveIsLeftOut) {
  asio::io_context io;
  const tcp::endpoint elsewhere(make_address("203.0.113.1"), 0);
  Listener listener(&io);
  ASSERT_TRUE(listener.OpenPorts({elsewhere, {make_address("127.0.0.1"), 0}}).ok());
  EXPECT_THAT(listener.addresses(), ElementsAre(fmt::format("127.0.0.1:{}", listener.port())));
  Listener nowhere(&io);
  const Status status = nowhere.OpenPorts({elsewhere});
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("cannot listen on 203.0.113.1:0: "));
}

TEST(ListenerTest, APortThatIsTakenAtOneAddressIsAnError) {
  asio::io_context io;
  Listener other(&io);
  ASSERT_TRUE(other.OpenPorts({{make_address("127.0.0.2"), 0}}).ok());
  const uint16_t port = other.port();
  Listener listener(&io);
  const Status status =
      listener.OpenPorts({{make_address("127.0.0.1"), port}, {make_address("127.0.0.2"), port}});
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("cannot listen on 127.0.0.2:{}: ", port)));
}

TEST(ListenerTest, SocketsThatListenAreTakenOver) {
  asio::io_context io;
  const TempFolder folder;
  const std::string path = folder.File("socket");
  tcp::acceptor port(io, {make_address("127.0.0.1"), 0});
  asio::local::stream_protocol::acceptor file(io, {path});
  const uint16_t number = port.local_endpoint().port();
  {
    Listener listener(&io);
    ASSERT_TRUE(listener.Adopt({dup(port.native_handle()), dup(file.native_handle())}).ok());
    EXPECT_EQ(listener.port(), number);
    EXPECT_THAT(listener.addresses(),
                ElementsAre(fmt::format("127.0.0.1:{}", number), "unix:" + path));
    EXPECT_TRUE(Connects(&io, "127.0.0.1", number));
  }
  // The socket file stays, because another process made it.
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
}

TEST(ListenerTest, OtherDescriptorsAreRefused) {
  asio::io_context io;
  asio::ip::udp::socket datagrams(io, {make_address("127.0.0.1"), 0});
  tcp::socket silent(io, tcp::v4());
  for (const int descriptor : {datagrams.native_handle(), silent.native_handle(), -1}) {
    Listener listener(&io);
    const Status status = listener.Adopt({descriptor});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("expected a stream socket that listens"));
  }
}

}  // namespace
}  // namespace ebb::server
