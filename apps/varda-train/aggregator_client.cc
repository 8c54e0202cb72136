#include "aggregator_client.h"

#include <utility>

#include "base/text.h"
#include "model_directory.h"
#include "net/client.h"
#include "net/tunnel.h"

namespace varda::trainapp {
namespace {

constexpr std::uint64_t kStreamTokenBytesMax = 4096;

}  // namespace

Result<net::ClientResponse> AggregatorClient::send(const Context& ctx, net::ClientRequest request) {
  if (use_address_ || stream_ == nullptr) return address_->send(ctx, std::move(request));
  if (stream_works_ || address_ == nullptr) return stream_->send(ctx, std::move(request));
  auto response = stream_->send(ctx, request);
  stream_works_ = response.ok();
  if (response.ok() || response.error().code() != Code::kNotFound) return response;
  use_address_ = true;
  return address_->send(ctx, std::move(request));
}

std::unique_ptr<net::HttpClient> stream_client(const worker::Access& access, os::FileSystem& fs) {
  // The agent may replace the token.
  const auto headers = [&fs, file = access.token_file]() -> Result<net::Headers> {
    TRY(const std::string token, read_regular(fs, followed(file), kStreamTokenBytesMax));
    return net::Headers{{"Authorization", "Bearer " + std::string(trim(token))}};
  };
  return net::make_client(
      {.connector = net::upgrade_connector({.unix_socket = access.socket.string()},
                                           "http://agent/v1/streams/aggregator", headers)});
}

}  // namespace varda::trainapp
