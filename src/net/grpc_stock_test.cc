// The gRPC server with a client of another make: Python's grpcio, where Debian's python3-grpcio is
// installed.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/testing/eventually.h"
#include "net/certificates.h"
#include "net/grpc_server.h"

namespace varda::net {
namespace grpc_stock_test {

using namespace std::chrono_literals;

std::string output_of(const std::string& command) {
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string out;
  std::array<char, 4096> piece;
  while (pipe && std::fgets(piece.data(), static_cast<int>(piece.size()), pipe))
    out += piece.data();
  if (pipe) ::pclose(pipe);
  return out;
}

class GrpcStock : public ::testing::Test {
 protected:
  void SetUp() override {
    if (output_of("/usr/bin/python3 -c 'import grpc; print(1)'") != "1\n")
      GTEST_SKIP() << "python3-grpcio is not installed";
  }

  void run(std::optional<TlsServer> tls, const std::string& ca) {
    GrpcThreads threads({.threads = 8});
    std::atomic<int> hanging = 0;
    const GrpcHandler methods = grpc_methods(
        {{"/test.Stock/Echo", threads.unary([](const Context&, const GrpcRequest&,
                                               std::string_view message) -> Result<std::string> {
            return std::string(message);
          })},
         {"/test.Stock/Fail", threads.unary([](const Context&, const GrpcRequest&,
                                               std::string_view) -> Result<std::string> {
            return Error(Code::kNotFound, "no \"digits\", 100 % of \xE2\x82\xAC");
          })},
         {"/test.Stock/Hang", threads.unary([&](const Context& ctx, const GrpcRequest&,
                                                std::string_view) -> Result<std::string> {
            ++hanging;
            const Status status = ctx.sleep_for(10min);
            --hanging;
            return status.error();
          })},
         {"/test.Stock/Join", threads.streaming([](GrpcStream& stream) -> Status {
            while (true) {
              TRY(const auto message, stream.read());
              if (!message) return {};
              TRY_VOID(stream.write("<" + message->bytes + ">"));
            }
          })}});
    auto server = GrpcServer::create(
        {.tls = std::move(tls), .message_bytes_max = 32u << 20, .received_bytes_max = 64u << 20},
        methods);
    ASSERT_TRUE(server.ok()) << server.error();
    EXPECT_EQ(output_of("/usr/bin/python3 src/net/testdata/stock_client.py localhost:" +
                        std::to_string((*server)->port()) + " " + ca),
              "ok\n");
    EXPECT_TRUE(eventually("cancelled calls end", [&] { return hanging == 0; }));
    (*server)->stop(0ms);
  }
};

TEST_F(GrpcStock, ClientOfPythonCallsInClearText) { run(std::nullopt, ""); }

TEST_F(GrpcStock, ClientOfPythonCallsOverTls) {
  const KeyPair ca = *make_ca("test-ca", 24h);
  const KeyPair server =
      *make_certificate(ca, {.common_name = "server", .hosts = {"localhost"}, .server = true});
  char path[] = "/tmp/varda-ca-XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  ::close(fd);
  std::ofstream(path) << ca.certificate_pem;
  run(TlsServer{.certificate_pem = server.certificate_pem, .key_pem = server.key_pem}, path);
  std::filesystem::remove(path);
}

}  // namespace grpc_stock_test
}  // namespace varda::net
