#include "artifact/internal/authorization.h"

#include "artifact/internal/aws_signature.h"
#include "artifact/internal/http_date.h"
#include "codec/digest.h"

namespace varda::artifact {
namespace {

constexpr std::string_view kDefaultRegion = "us-east-1";

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
      : path_(address.target),
        key_{credentials.access_key_id, credentials.secret_access_key, credentials.session_token,
             credentials.region.empty() ? std::string(kDefaultRegion) : credentials.region},
        clock_(clock) {
    host_ = address.origin();
    host_.erase(0, host_.find("://") + 3);
  }

  void add(net::ClientRequest& request) override {
    request.headers.set("Host", host_);
    aws_sign(request, host_, path_, key_, clock_.wall() + ahead_);
  }

  // RequestTimeTooSkewed: fifteen minutes apart are too many.
  bool refused(const net::Headers& headers) override {
    const auto theirs = parse_http_date(headers.find("Date").value_or(""));
    if (!theirs || asked_again_) return false;
    ahead_ = *theirs - clock_.wall();
    asked_again_ = true;
    return ahead_ > std::chrono::minutes(5) || ahead_ < -std::chrono::minutes(5);
  }

 private:
  std::string host_;
  const std::string path_;
  const AwsKey key_;
  const Clock& clock_;
  WallTime::duration ahead_{0};  // of the peer's clock
  bool asked_again_ = false;
};

}  // namespace

std::unique_ptr<Authorization> http_authorization(const Credentials& credentials) {
  if (!credentials.token.empty()) return std::make_unique<Fixed>("Bearer " + credentials.token);
  if (credentials.username.empty()) return nullptr;
  return std::make_unique<Fixed>("Basic " + codec::base64(credentials.username + ":" + credentials.password));
}

Result<net::Url> s3_address(const net::Url& url, const Credentials& credentials) {
  if (url.host.empty() || url.port != 0 || !url.user.empty()) return Error(Code::kInvalid, "an s3 URL is s3://BUCKET/KEY");
  if (url.target.find('?') != std::string::npos) return Error(Code::kInvalid, "an s3 URL has no query; write ? as %3F");
  TRY(const std::string key, net::percent_decode(std::string_view(url.target).substr(1)));
  if (key.empty()) return Error(Code::kInvalid, "an s3 URL is s3://BUCKET/KEY");
  const std::string region = credentials.region.empty() ? std::string(kDefaultRegion) : credentials.region;
  const bool own_host = credentials.endpoint.empty() && url.host.find('.') == std::string::npos;
  std::string endpoint = credentials.endpoint;
  // A bucket with dots has no certificate of its own.
  if (endpoint.empty()) endpoint = "https://" + (own_host ? url.host + "." : std::string()) + "s3." + region + ".amazonaws.com";
  TRY(net::Url address, net::Url::parse(endpoint).context("AWS_ENDPOINT_URL"));
  if (address.scheme != "http" && address.scheme != "https")
    return Error(Code::kInvalid, "AWS_ENDPOINT_URL: must be an http or https URL");
  address.target = (own_host ? "/" : "/" + url.host + "/") + aws_encode_path(key);
  return address;
}

std::unique_ptr<Authorization> s3_authorization(const net::Url& address, const Credentials& credentials, const Clock& clock) {
  if (credentials.access_key_id.empty()) return nullptr;
  return std::make_unique<S3>(address, credentials, clock);
}

}  // namespace varda::artifact
