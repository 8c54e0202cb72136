#include "registry_storage.h"

#include <utility>

#include "artifact/credentials.h"
#include "download_flags.h"
#include "net/client.h"
#include "registry/bucket_store.h"
#include "registry/bucket_versions.h"
#include "registry/directory_store.h"

namespace varda::app {
namespace {

Result<artifact::Credentials> bucket_credentials(const RegistryStorage::Options& options) {
  artifact::Credentials out;
  if (!options.credentials_dir.empty()) {
    TRY(const auto keys, read_secret_directory(options.credentials_dir));
    TRY(out, artifact::parse_credentials(keys).context(options.credentials_dir));
    if (out.access_key_id.empty())
      return Error(Code::kInvalid, options.credentials_dir + ": has no AWS_ACCESS_KEY_ID");
  }
  if (!options.s3_endpoint.empty()) out.endpoint = options.s3_endpoint;
  return out;
}

Status open_bucket(const Context& ctx, const RegistryStorage::Options& options,
                   metrics::Registry& metrics, RegistryStorage& out) {
  TRY(artifact::Credentials credentials,
      bucket_credentials(options).context("--s3-credentials-dir"));
  net::ClientOptions client;
  client.extra_ca_pem = credentials.ca_pem;
  client.dead_after = std::chrono::seconds(30);
  out.http = net::make_client(client);
  registry::BucketOptions bucket{.url = options.s3, .credentials = std::move(credentials)};
  bucket.metrics = &metrics;
  TRY(out.bucket, registry::Bucket::create(std::move(bucket), *out.http).context("--s3"));
  TRY(out.blobs, registry::open_bucket_store(
                     ctx, {.spool = options.root / "spool", .quota_bytes = options.quota_bytes},
                     *out.bucket, os::real_file_system())
                     .context(options.s3));
  auto versions = std::make_unique<registry::BucketVersions>(ctx, *out.bucket);
  TRY_VOID(versions->open().context(options.s3));
  out.versions = std::move(versions);
  return {};
}

}  // namespace

Result<RegistryStorage> RegistryStorage::open(const Context& ctx, const Options& options,
                                              metrics::Registry& metrics) {
  os::FileSystem& fs = os::real_file_system();
  RegistryStorage out;
  TRY(out.lock, os::FileLock::acquire(options.root / "lock"));
  if (!options.s3.empty()) {
    TRY_VOID(open_bucket(ctx, options, metrics, out));
    return out;
  }
  TRY(out.blobs,
      registry::open_directory_store({.root = options.root, .quota_bytes = options.quota_bytes}, fs)
          .context(options.root.string()));
  auto versions = std::make_unique<registry::Versions>(fs, options.root);
  TRY_VOID(versions->open().context(options.root.string()));
  out.versions = std::move(versions);
  return out;
}

}  // namespace varda::app
