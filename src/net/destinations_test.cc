#include "net/destinations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/context.h"
#include "net/client.h"
#include "net/server.h"

namespace varda::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::string& address, const std::vector<std::string>& allowed = {}) {
  return Destinations::create(allowed)->refusal(parse_ip(address));
}

TEST(Destinations, LoopbackLinkLocalAndMetadataAddressesAreRefused) {
  for (const char* address : {"127.0.0.1",     "127.255.255.254",  "::1",
                              "0.0.0.0",       "0.1.2.3",          "::",
                              "169.254.1.1",   "169.254.169.254",  "fe80::1",
                              "febf::1",       "224.0.0.1",        "239.255.255.255",
                              "ff02::1",       "255.255.255.255",  "100.100.100.200",
                              "168.63.129.16", "192.0.0.192",      "fd00:ec2::254",
                              "fd20:ce::254",  "::ffff:127.0.0.1", "::ffff:169.254.169.254",
                              "::127.0.0.1",   "64:ff9b::7f00:1"}) {
    EXPECT_THAT(refusal(address), HasSubstr(" is a")) << address;
  }
  EXPECT_EQ(refusal("::ffff:127.0.0.1"), "::ffff:127.0.0.1 is a loopback address");
}

TEST(Destinations, OrdinaryNetworkAddressesAreAllowed) {
  for (const char* address : {"10.0.0.7", "192.168.1.17", "172.16.0.1", "100.64.0.1", "8.8.8.8",
                              "126.255.255.255", "128.0.0.1", "169.253.255.255", "2001:db8::1",
                              "fd00::1", "fec0::1", "::ffff:10.0.0.1", "64:ff9b::808:808"}) {
    EXPECT_EQ(refusal(address), "") << address;
  }
}

TEST(Destinations, AddressInAnAllowedBlockIsNotRefused) {
  EXPECT_EQ(refusal("127.0.0.1", {"127.0.0.0/8"}), "");
  EXPECT_EQ(refusal("::ffff:127.0.0.1", {"127.0.0.1"}), "");
  EXPECT_EQ(refusal("fe80::1", {"10.0.0.0/8", "fe80::/10"}), "");
  EXPECT_EQ(refusal("127.0.0.2", {"127.0.0.1/32"}), "127.0.0.2 is a loopback address");
  EXPECT_EQ(refusal("169.254.169.254", {"0.0.0.0/0"}), "");
  for (const char* wrong :
       {"", "localhost", "127.0.0.1/", "127.0.0.1/33", "127.0.0.1/-1", "127.0.0.1/8x", "::/129"})
    EXPECT_EQ(Destinations::create({wrong}).error().code(), Code::kInvalid) << wrong;
}

Handler answer(std::string body) {
  return inline_handler([body = std::move(body)](const Request&) {
    Response response;
    response.body = body;
    return response;
  });
}

Result<HttpClient::Answer> get(const ClientOptions& options, const std::string& url) {
  ClientRequest request;
  request.url = url;
  return make_client(options)->call(Context::background(), std::move(request));
}

TEST(ClientDestinations, EveryHopIsCheckedByItsConnectedAddress) {
  const auto inner = Server::create({.listen = "127.0.0.2:0"}, answer("secret"));
  ASSERT_TRUE(inner.ok()) << inner.error();
  const std::string inside = "http://" + (*inner)->address() + "/";
  const auto outer = Server::create({.listen = "127.0.0.1:0"}, inline_handler([&](const Request&) {
                                      Response response;
                                      response.status = 302;
                                      response.headers.set("Location", inside);
                                      return response;
                                    }));
  ASSERT_TRUE(outer.ok()) << outer.error();
  const std::string outside = "http://" + (*outer)->address() + "/";
  const std::string port = outside.substr(outside.rfind(':'));

  ClientOptions options{.redirects_max = 3};
  EXPECT_EQ(get(options, outside)->body, "secret")
      << "without Destinations every address is reached";
  options.destinations = *Destinations::create({});
  for (const std::string& host :
       {std::string("127.0.0.1"), std::string("localhost"), std::string("127.1"),
        std::string("0x7f000001"), std::string("2130706433"), std::string("[::ffff:127.0.0.1]"),
        std::string("0.0.0.0")}) {
    const auto refused = get(options, "http://" + host + port);
    ASSERT_FALSE(refused.ok()) << host;
    EXPECT_EQ(refused.error().code(), Code::kForbidden) << host << ": " << refused.error();
    EXPECT_TRUE(refused.error().terminal());
    EXPECT_THAT(refused.error().message(), HasSubstr("--allow-source")) << host;
  }
  options.destinations = *Destinations::create({"127.0.0.1"});
  const auto hop = get(options, outside);
  ASSERT_FALSE(hop.ok());
  EXPECT_THAT(hop.error().message(), AllOf(HasSubstr("127.0.0.2 is a loopback address"),
                                           HasSubstr("--allow-source 127.0.0.2")));
  options.destinations = *Destinations::create({"127.0.0.0/8"});
  EXPECT_EQ(get(options, outside)->body, "secret");
}

TEST(ClientDestinations, ProxyGetsNoRequestForRefusedAddresses) {
  const auto proxy = Server::create({.listen = "127.0.0.1:0"}, answer("from the proxy"));
  ASSERT_TRUE(proxy.ok()) << proxy.error();
  ClientOptions options;
  options.proxies.http = "http://" + (*proxy)->address();
  options.destinations = *Destinations::create({});
  EXPECT_EQ(get(options, "http://files.example/m.tar")->body, "from the proxy");
  for (const char* host : {"169.254.169.254", "127.1", "[::ffff:169.254.169.254]", "[fe80::1]"})
    EXPECT_EQ(get(options, "http://" + std::string(host) + "/").error().code(), Code::kForbidden)
        << host;
}

TEST(ClientDestinations, AnswerReportsARedirectToAnotherOrigin) {
  const auto server = Server::create(
      {.listen = "127.0.0.1:0"}, inline_handler([](const Request& request) {
        Response response;
        if (request.target == "/same" || request.target == "/other") {
          response.status = 302;
          const auto host = std::string(request.headers.find("Host").value_or(""));
          response.headers.set("Location",
                               request.target == "/same"
                                   ? "/here"
                                   : "http://localhost" + host.substr(host.rfind(':')) + "/here");
        }
        return response;
      }));
  ASSERT_TRUE(server.ok()) << server.error();
  const auto client = make_client({.redirects_max = 3});
  const auto other_origin = [&](const std::string& path) {
    ClientRequest request;
    request.url = "http://" + (*server)->address() + path;
    return client->send(Context::background(), std::move(request))->other_origin;
  };
  EXPECT_FALSE(other_origin("/here"));
  EXPECT_FALSE(other_origin("/same"));
  EXPECT_TRUE(other_origin("/other"));
}

}  // namespace
}  // namespace varda::net
