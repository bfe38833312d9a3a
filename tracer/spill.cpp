#include "tracer/spill.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace superneurons {
namespace {

Error io_error(const std::string& folder, const char* what) {
  return {ErrorCode::io, std::string(what) + " (" + std::strerror(errno) + ")", folder};
}

}  // namespace

ScratchFile::~ScratchFile() {
  if (file_ >= 0) ::close(file_);
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : folder_(std::move(other.folder_)),
      file_(std::exchange(other.file_, -1)),
      size_(std::exchange(other.size_, 0)) {}

Status ScratchFile::append(const void* data, std::size_t size) {
  if (file_ < 0) {
    std::string name = folder_ + "/superneurons-XXXXXX";
    file_ = ::mkstemp(name.data());
    if (file_ < 0) return io_error(folder_, "no temporary file can be made here");
    ::unlink(name.c_str());
  }
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file_, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return io_error(folder_, "a temporary file cannot be written");
    at += written;
    size -= static_cast<std::size_t>(written);
    size_ += static_cast<std::size_t>(written);
  }
  return Ok{};
}

Status ScratchFile::read(std::size_t offset, void* data, std::size_t size) const {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::pread(file_, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return io_error(folder_, "a temporary file cannot be read back");
    at += got;
    offset += static_cast<std::size_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return Ok{};
}

}  // namespace superneurons
