#!/bin/bash
# two_hosts.sh FOLDER PROGRAM ARGUMENTS…: runs PROGRAM under mpirun on two hosts, which are two network namespaces joined
# by a veth pair, and cuts the link once rank 0 has written "did step 3". Each rank's output and last its
# "exit status N" go to FOLDER/rank.N. Ends with 77 where namespaces are not allowed.
set -u
folder=$1
shift
id=$$
a=mega$id b=megb$id link=v$id
mpi=
cleanup() {
  [ -n "$mpi" ] && kill -9 "$mpi" 2>/dev/null
  for name in $a $b; do
    for pid in $(ip netns pids $name 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
    ip netns del $name 2>/dev/null
  done
}
trap cleanup EXIT
ip netns add $a 2>/dev/null && ip netns add $b 2>/dev/null || exit 77
ip link add ${link}a netns $a type veth peer name ${link}b netns $b 2>/dev/null || exit 77
ip -n $a addr add 10.203.7.1/24 dev ${link}a
ip -n $b addr add 10.203.7.2/24 dev ${link}b
ip -n $a link set lo up && ip -n $a link set ${link}a up
ip -n $b link set lo up && ip -n $b link set ${link}b up

# Stands for ssh: the first argument is the host, the rest the command.
cat > "$folder/agent" <<EOF
#!/bin/sh
shift
exec ip netns exec $b sh -c "\$*"
EOF
chmod +x "$folder/agent"
cat > "$folder/rank" <<EOF
#!/bin/sh
out="$folder/rank.\$OMPI_COMM_WORLD_RANK"
"\$@" > "\$out" 2>&1
echo "exit status \$?" >> "\$out"
EOF
chmod +x "$folder/rank"

ip netns exec $a mpirun --host 10.203.7.1:1,10.203.7.2:1 -n 2 --mca plm_rsh_agent "$folder/agent" \
  --mca btl tcp,self --mca btl_tcp_if_include 10.203.7.0/24 --mca oob_tcp_if_include 10.203.7.0/24 \
  "$folder/rank" "$@" > "$folder/mpirun" 2>&1 &
mpi=$!
for _ in $(seq 400); do
  grep -qs "did step 3" "$folder/rank.0" && break
  kill -0 $mpi 2>/dev/null || break
  sleep 0.05
done
grep -qs "did step 3" "$folder/rank.0" || { cat "$folder/mpirun"; exit 1; }
ip -n $a link set ${link}a down
for _ in $(seq 300); do
  grep -qs "exit status" "$folder/rank.0" && grep -qs "exit status" "$folder/rank.1" && exit 0
  sleep 0.05
done
echo "15 seconds after the cut a rank is still there"
exit 1
