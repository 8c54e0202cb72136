#include "artifact/internal/authorization.h"

#include <algorithm>
#include <array>

#include "artifact/internal/http_date.h"
#include "artifact/s3.h"
#include "codec/digest.h"
#include "net/ip.h"

namespace varda::artifact {
namespace {

class Fixed final : public Authorization {
 public:
  explicit Fixed(std::string value) : value_(std::move(value)) {}
  void add(net::ClientRequest& request) override { request.headers.set("Authorization", value_); }

 private:
  const std::string value_;
};

class S3 final : public Authorization {
 public:
  S3(const net::Url& address, const Credentials& credentials, const Clock& clock)
      : target_(address.target), key_(aws_key(credentials)), clock_(clock) {
    host_ = address.origin();
    host_.erase(0, host_.find("://") + 3);
  }

  void add(net::ClientRequest& request) override {
    request.headers.set("Host", host_);
    aws_sign(request, host_, target_, key_, clock_.wall() + ahead_);
  }

  // RequestTimeTooSkewed: S3 refuses clocks that differ by more than fifteen minutes.
  bool refused(const net::Headers& headers) override {
    const auto server_time = parse_http_date(headers.find("Date").value_or(""));
    if (!server_time || retried_) return false;
    ahead_ = *server_time - clock_.wall();
    retried_ = true;
    return ahead_ > std::chrono::minutes(5) || ahead_ < -std::chrono::minutes(5);
  }

 private:
  std::string host_;
  const std::string target_;
  const AwsKey key_;
  const Clock& clock_;
  WallTime::duration ahead_{0};  // by this much the server's clock is ahead
  bool retried_ = false;
};

/// Matches "files.example" at every port, and "*.example" as every host below it.
bool covers(std::string_view entry, const net::Url& url) {
  std::string host = url.origin();
  host.erase(0, host.find("://") + 3);  // without the default port
  const std::string whole =
      (url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]") + ":" +
      std::to_string(url.port);
  if (entry == url.host || entry == host || entry == whole) return true;
  if (entry == whole.substr(0, whole.rfind(':'))) return true;  // an IPv6 address in brackets
  return entry.starts_with("*.") && url.host.size() >= entry.size() &&
         url.host.ends_with(entry.substr(1));
}

bool is_loopback(const std::string& host) {
  static const std::array<net::IpBlock, 2> blocks{*net::parse_ip_block("127.0.0.0/8"),
                                                  *net::parse_ip_block("::1")};
  const net::Ip ip = net::without_ipv6_wrapping(net::parse_ip(host));
  return host == "localhost" || std::any_of(blocks.begin(), blocks.end(),
                                            [&](const auto& block) { return block.contains(ip); });
}

}  // namespace

Sending sending_of(const Credentials& credentials, const net::Url& url, const std::string& first) {
  using Kind = Sending::Kind;
  const bool s3 = url.scheme == "s3";
  if (s3 ? credentials.access_key_id.empty()
         : credentials.token.empty() && credentials.username.empty())
    return {};
  if (!s3 && url.scheme != "http" && url.scheme != "https") return {};
  net::Url to = url;
  if (s3) {
    const auto address = s3_address(url, credentials);
    // The Secret itself names the endpoint. Without an endpoint and without hosts, signed requests
    // go to AWS.
    if (!address.ok() || !credentials.endpoint.empty() || !credentials.hosts) return {Kind::kSent};
    to = *address;
  }
  if (credentials.hosts) {
    const auto listed = [&](const std::string& entry) { return covers(entry, to); };
    if (std::none_of(credentials.hosts->begin(), credentials.hosts->end(), listed))
      return {Kind::kWithheld, "its key hosts does not contain " + to.host};
  } else if (const auto own = net::Url::parse(first);
             !own.ok() || own->host != to.host || own->port != to.port) {
    return {Kind::kWithheld,
            "without a key hosts, credentials are sent to the host of downloadURL only"};
  }
  if (to.scheme == "http" && !s3 && !credentials.allow_http && !is_loopback(to.host))
    return {Kind::kWithheld,
            "plain http exposes credentials: use https, or add a key allow-http: \"true\""};
  return {Kind::kSent};
}

std::unique_ptr<Authorization> http_authorization(const Credentials& credentials) {
  if (!credentials.token.empty()) return std::make_unique<Fixed>("Bearer " + credentials.token);
  if (credentials.username.empty()) return nullptr;
  return std::make_unique<Fixed>("Basic " +
                                 codec::base64(credentials.username + ":" + credentials.password));
}

std::unique_ptr<Authorization> s3_authorization(const net::Url& address,
                                                const Credentials& credentials,
                                                const Clock& clock) {
  if (credentials.access_key_id.empty()) return nullptr;
  return std::make_unique<S3>(address, credentials, clock);
}

}  // namespace varda::artifact
