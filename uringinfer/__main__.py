from uringinfer.cli.main import main

main()
