#ifndef EBB_SERVER_ACCESS_HASHES_FOR_TEST_H_
#define EBB_SERVER_ACCESS_HASHES_FOR_TEST_H_

namespace ebb::server {

// kHashOfAbc is the SHA-256 of "abc", as the standard gives it; kHashOfNothing is that of "".
inline constexpr const char* kHashOfAbc =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
inline constexpr const char* kHashOfNothing =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_HASHES_FOR_TEST_H_
